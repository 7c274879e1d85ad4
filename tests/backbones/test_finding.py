"""Finding the head of models built as the well-known libraries build theirs, and putting units there."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gated_domains import GatedDomainUnits, fit_head, model_head, replace_head
from gated_domains.backbones.heads import find_head

CLASSES = 3


# -- models, in the style of ... -------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + self.downsample(x))


class ResNetLike(nn.Module):
    """torchvision's: ``fc`` after an average pool."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 8), Block(8, 16))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.layer1(torch.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGGLike(nn.Module):
    """torchvision's: a ``classifier`` of several linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(True), nn.AdaptiveAvgPool2d(2))
        self.classifier = nn.Sequential(
            nn.Linear(16, 12), nn.ReLU(True), nn.Dropout(), nn.Linear(12, 12), nn.ReLU(True), nn.Linear(12, CLASSES)
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class EncoderBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.self_attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class ViTLike(nn.Module):
    """torchvision's: ``heads.head`` after an encoder with nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, 8, 4, stride=4)
        self.encoder = nn.Sequential(OrderedDict(one=EncoderBlock(8), two=EncoderBlock(8), ln=nn.LayerNorm(8)))
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(8, CLASSES)))

    def forward(self, x):
        tokens = self.conv_proj(x).flatten(2).mT
        return self.heads(self.encoder(tokens)[:, 0])


class ModelOutput(OrderedDict):
    """transformers': a mapping whose entries are attributes as well."""

    def __getattr__(self, name):
        return self[name]


class DistilBertLike(nn.Module):
    """transformers': called with keywords, ``pre_classifier`` and ``classifier``, returns a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(20, 8)
        self.q_lin, self.k_lin, self.v_lin, self.out_lin = (nn.Linear(8, 8) for _ in range(4))
        self.sa_layer_norm = nn.LayerNorm(8)
        self.ffn = nn.ModuleDict({"lin1": nn.Linear(8, 16), "lin2": nn.Linear(16, 8)})
        self.output_layer_norm = nn.LayerNorm(8)
        self.pre_classifier, self.classifier = nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.dropout = nn.Dropout(0.2)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        x = self.word_embeddings(input_ids)
        scores = self.q_lin(x) @ self.k_lin(x).mT / 8**0.5
        scores = scores.masked_fill(attention_mask[:, None] == 0, -torch.inf)
        x = self.sa_layer_norm(x + self.out_lin(scores.softmax(-1) @ self.v_lin(x)))
        x = self.output_layer_norm(x + self.ffn["lin2"](F.gelu(self.ffn["lin1"](x))))
        logits = self.classifier(self.dropout(torch.relu(self.pre_classifier(x[:, 0]))))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return ModelOutput(loss=loss, logits=logits) if loss is not None else ModelOutput(logits=logits)


class GINConvLike(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.nn = nn.Sequential(
            nn.Linear(channels, 2 * out), nn.BatchNorm1d(2 * out), nn.ReLU(), nn.Linear(2 * out, out)
        )

    def forward(self, x, edge_index):
        return self.nn(x + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]))


class GNNLike(nn.Module):
    """torch_geometric's: ``forward(x, edge_index, batch)``, ``lin`` after a global pool."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GINConvLike(4, 8), GINConvLike(8, 8)
        self.lin = nn.Linear(8, CLASSES)

    def forward(self, x, edge_index, batch):
        x = self.conv2(torch.relu(self.conv1(x, edge_index)), edge_index)
        graphs = F.one_hot(batch).to(x.dtype)
        return self.lin(graphs.mT @ x / graphs.sum(0)[:, None])


class LeNetLike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3)
        self.fc1, self.fc2, self.fc3 = nn.Linear(6, 12), nn.Linear(12, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x)))).mean((2, 3))
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class LSTMLike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(20, 6), nn.LSTM(6, 8, batch_first=True)
        self.decoder = nn.Linear(8, CLASSES)

    def forward(self, tokens):
        return self.decoder(self.lstm(self.embedding(tokens))[0][:, -1])


def images(batch: int = 4) -> torch.Tensor:
    return torch.randn(batch, 3, 8, 8)


def sentences() -> dict[str, torch.Tensor]:
    mask = torch.ones(4, 5, dtype=torch.long)
    mask[0, 3:] = 0
    return {"input_ids": torch.randint(20, (4, 5)), "attention_mask": mask}


def graphs() -> tuple[torch.Tensor, ...]:
    return torch.randn(9, 4), torch.randint(9, (2, 20)), torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])


def sequential() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10), nn.ReLU(), nn.Linear(10, CLASSES))


ZOO = {
    "resnet": (ResNetLike, images, "fc"),
    "vgg": (VGGLike, images, "classifier.5"),
    "vit": (ViTLike, images, "heads.head"),
    "transformers": (DistilBertLike, sentences, "classifier"),
    "graphs": (GNNLike, graphs, "lin"),
    "lenet": (LeNetLike, images, "fc3"),
    "lstm": (LSTMLike, lambda: torch.randint(20, (4, 7)), "decoder"),
    "sequential": (sequential, images, "3"),
    "bare": (lambda: nn.Linear(6, CLASSES), lambda: torch.randn(4, 6), ""),
}
in_the_zoo = pytest.mark.parametrize(("make", "inputs", "place"), ZOO.values(), ids=ZOO)


def called(model: nn.Module, inputs) -> torch.Tensor:
    if isinstance(inputs, dict):
        return model(**inputs)["logits"]
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


# -- finding ---------------------------------------------------------------------------------------------------------


@in_the_zoo
def test_the_head_is_found_by_the_widths_of_the_layers(make, inputs, place):
    model = make()
    assert find_head(model) == (place, model.get_submodule(place))


@in_the_zoo
def test_the_head_is_found_by_what_the_model_returns(make, inputs, place):
    model = make()
    assert find_head(model, example=inputs()) == (place, model.get_submodule(place))


@in_the_zoo
def test_looking_at_an_example_leaves_no_hook_no_mode_and_no_statistics_changed(make, inputs, place):
    model = make().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    find_head(model, example=inputs())
    assert all(module.training and not module._forward_hooks for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.kind, self.colour = nn.Linear(8, 3), nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.body(x))
        return self.kind(x), self.colour(x)


class HelperHead(TwoHeads):
    """A second head that helps in training only."""

    def forward(self, x):
        x = torch.relu(self.body(x))
        return (self.kind(x), self.colour(x)) if self.training else self.kind(x)


class HeadFirst(nn.Module):
    """The head is registered before what feeds it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU())

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize("example", [None, torch.randn(2, 6)], ids=["widths", "example"])
def test_two_heads_are_an_error_that_lists_both_and_the_cure(example):
    with pytest.raises(ValueError, match=r"TwoHeads has 2 .*kind \(8 -> 3\), colour \(8 -> 4\).*name=") as error:
        find_head(TwoHeads(), example=example)
    assert "body" not in str(error.value)


def test_a_model_without_linear_layers_is_an_error():
    with pytest.raises(ValueError, match=r"Sequential has no nn\.Linear"):
        find_head(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))


READERS = {
    "linear": nn.Linear(6, 12),
    "convolution": nn.Conv1d(6, 12, 3),
    "batch norm": nn.BatchNorm1d(6),
    "layer norm": nn.LayerNorm(6),
    "attention": nn.MultiheadAttention(6, 2),
    "recurrent": nn.LSTM(6, 12),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_layer_that_another_reads_is_not_the_head(reader):
    assert find_head(nn.Sequential(nn.Linear(5, 6), reader, nn.Linear(12, 3)))[0] == "2"


def test_attention_alone_offers_no_head():
    with pytest.raises(ValueError, match=r"has no nn\.Linear"):
        find_head(nn.MultiheadAttention(8, 2))


def test_a_name_picks_the_head_among_several():
    model = TwoHeads()
    assert find_head(model, name="colour") == ("colour", model.colour)


def test_a_name_wins_over_an_example():
    model = LeNetLike()
    assert find_head(model, name="fc1", example=images())[0] == "fc1"


@pytest.mark.parametrize("name", ["clasifier", "conv1", ""])
def test_a_name_that_is_no_linear_layer_is_an_error_that_lists_those_there_are(name):
    with pytest.raises(ValueError, match=rf"named '{name}'; it has fc1 \(6 -> 12\), fc2 .*, fc3 \(8 -> 3\)"):
        find_head(LeNetLike(), name=name)


def test_a_long_list_of_layers_shows_the_last_and_counts_the_rest():
    with pytest.raises(ValueError, match=r"it has 8 .* 19 .* and 8 before"):
        find_head(nn.Sequential(*(nn.Linear(2, 2) for _ in range(20))), name="nothing")


def test_an_example_shows_the_head_where_widths_cannot():
    with pytest.raises(ValueError, match="example="):
        find_head(HelperHead())
    assert find_head(HelperHead(), example=torch.randn(2, 6))[0] == "kind"


@pytest.mark.parametrize("example", [None, torch.randn(2, 5)], ids=["nesting", "example"])
def test_a_head_registered_before_its_body_is_found(example):
    assert find_head(HeadFirst(), example=example)[0] == "head"


def test_a_head_whose_output_is_reshaped_is_still_recognised():
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.helper, self.score = nn.Linear(6, 5), nn.Linear(6, 1)

        def forward(self, x):
            return self.score(x).squeeze(-1)

    assert find_head(Flat(), example=torch.randn(4, 6))[0] == "score"


def test_an_example_does_not_hide_a_head_that_widths_show():
    class LogProbabilities(LeNetLike):
        def forward(self, x):
            return F.log_softmax(super().forward(x), -1)

    assert find_head(LogProbabilities())[0] == "fc3"
    assert find_head(LogProbabilities(), example=images())[0] == "fc3"


# -- replacing, all over the zoo -------------------------------------------------------------------------------------


@in_the_zoo
@pytest.mark.parametrize("with_example", [False, True])
def test_a_model_gives_the_same_output_with_units_in_its_head(make, inputs, place, with_example):
    model, batch = make().eval(), inputs()
    before = called(model, batch)
    model = replace_head(model, example=batch if with_example else None, verbose=False)
    assert isinstance(model.get_submodule(place), GatedDomainUnits)
    assert model_head(model) is model.get_submodule(place)
    torch.testing.assert_close(called(model, batch), before)


@in_the_zoo
def test_a_model_with_units_can_be_fitted_and_trained(make, inputs, place):
    model = replace_head(make(), partial(GatedDomainUnits, num_bases=2, basis_size=3), verbose=False)
    batch = inputs()
    units = fit_head(model, [batch] if isinstance(batch, dict) else [(batch, None)])
    model.train()
    with units.record() as outs:
        logits = called(model, batch)
    (logits.square().sum() + units.penalty(outs[-1])).backward()
    assert outs[-1].prediction is logits
    assert all(parameter.grad.isfinite().all() for parameter in units.parameters())
    assert units.bases.grad.abs().max() > 0


@in_the_zoo
def test_replacing_says_what_was_replaced(make, inputs, place, capsys):
    model = make()
    old = model.get_submodule(place)
    replace_head(model)
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert f"replaced {place or 'the model'}: Linear({old.in_features} -> {CLASSES})" in line
    assert "5 gated domain units of 10 vectors" in line


def test_replacing_can_be_silent(capsys):
    replace_head(ResNetLike(), verbose=False)
    assert capsys.readouterr().out == ""


@in_the_zoo
def test_replacing_works_in_place_and_keeps_every_other_module(make, inputs, place):
    model = make()
    others = {name: module for name, module in model.named_modules() if name != place}
    replaced = replace_head(model, verbose=False)
    if place:
        assert replaced is model
    assert all(replaced.get_submodule(name) is module for name, module in others.items())


@pytest.mark.parametrize("training", [True, False])
def test_units_take_the_training_mode_of_what_they_replace_and_others_keep_theirs(training):
    model = ResNetLike().train(training)
    model.bn1.eval()
    replace_head(model, example=images(), verbose=False)
    assert model.fc.training is training
    assert model.fc.experts.training is training
    assert model.layer1.training is training
    assert model.bn1.training is False


def test_units_take_the_precision_of_what_they_replace():
    model = LeNetLike().double().eval()
    x = images().double()
    before = model(x)
    replace_head(model, example=x, verbose=False)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-12)


def test_units_take_the_device_of_what_they_replace():
    model = replace_head(LeNetLike().to("meta"), verbose=False)
    assert {value.device.type for value in model.state_dict().values()} == {"meta"}


def test_a_head_without_bias_keeps_its_output():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3, bias=False))
    x = torch.randn(4, 6)
    before = model(x)
    torch.testing.assert_close(replace_head(model, verbose=False)(x), before)


def test_units_of_the_paper_can_stand_in_the_head():
    model = replace_head(LeNetLike(), partial(GatedDomainUnits.paper, gate="mmd", setting="wilds"), verbose=False)
    units = model_head(model)
    assert type(units.gate).__name__ == "MMDGate"
    assert units.shared is None
    assert model(images()).shape == (4, CLASSES)


def test_a_name_says_which_head_is_replaced():
    model = replace_head(TwoHeads(), name="colour", verbose=False)
    assert isinstance(model.colour, GatedDomainUnits)
    assert isinstance(model.kind, nn.Linear)


@pytest.mark.parametrize("name", [None, "fc"])
@pytest.mark.parametrize("gating", [None, ["conv1"]])
def test_a_head_that_was_replaced_is_not_replaced_again(gating, name):
    model = replace_head(ResNetLike(), gating=gating, example=images(), verbose=False)
    units = model_head(model)
    with pytest.raises(
        ValueError, match=r"ResNetLike already has gated domain units: fc; use them \(model_head, renew_head"
    ):
        replace_head(model, name=name)
    assert model_head(model) is units
    with pytest.raises(ValueError, match="already has gated domain units: the model itself"):
        replace_head(units)


def test_a_second_head_goes_where_its_name_says():
    model = replace_head(replace_head(TwoHeads(), name="colour", verbose=False), name="kind", verbose=False)
    assert isinstance(model.kind, GatedDomainUnits)


def test_an_error_leaves_the_model_as_it_was():
    model = TwoHeads()
    with pytest.raises(ValueError, match="choose one"):
        replace_head(model)
    assert [type(module) for module in model.children()] == [nn.Linear] * 3


def test_a_batchnorm_keeps_its_statistics_when_an_example_is_shown():
    model = ResNetLike().train()
    before = model.bn1.running_mean.clone(), model.bn1.num_batches_tracked.clone()
    replace_head(model, example=images(), gating=["conv1"], verbose=False)
    assert torch.equal(model.bn1.running_mean, before[0])
    assert torch.equal(model.bn1.num_batches_tracked, before[1])
