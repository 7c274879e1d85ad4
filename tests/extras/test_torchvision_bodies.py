"""DenseNet-121, ResNet-50 and ResNet-18 as bodies: torchvision's own networks, for any channels, and their weights."""

from __future__ import annotations

import copy
import hashlib
import time

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gated_domains.backbones import BODIES, Backbone, RandomFilters, Style
from gated_domains.backbones.bodies import make_body, weights_digest, weights_note
from gated_domains.backbones.gated_norm import gate_norms, mixing
from gated_domains.backbones.mixstyle import mix_styles
from gated_domains.backbones.torchvision_bodies import widened_filters
from gated_domains.data.errors import DataError

pytestmark = pytest.mark.extras

NAMES = ["densenet121", "resnet50", "resnet18"]
FEATURES = {"densenet121": 1024, "resnet50": 2048, "resnet18": 512}
HEADS = {"densenet121": "classifier", "resnet50": "fc", "resnet18": "fc"}

every = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def an_empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))


def theirs(name: str) -> nn.Module:
    """torchvision's network, whose running statistics are not those it starts with."""
    import torchvision

    model = torchvision.models.get_model(name, weights=None)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.8, 1.2)
    return model


def images(rows: int = 2, channels: int = 3, size: int = 64) -> torch.Tensor:
    return torch.rand(rows, channels, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1


def shrunk(name: str, channels: int = 3, size: int = 64):
    return make_body(name, (channels, size, size), shrunk=True)


@every
def test_features_are_what_stands_before_the_last_layer_of_the_published_network(name, tmp_path):
    model = theirs(name).eval()
    torch.save(model.state_dict(), tmp_path / "own.pth")
    body = make_body(name, (3, 64, 64), pretrained=str(tmp_path / "own.pth")).eval()
    x = images()
    mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    setattr(model, HEADS[name], nn.Identity())
    with torch.no_grad():
        torch.testing.assert_close(body(x), model(((x + 1) / 2 - mean) / std), rtol=1e-3, atol=1e-4)
    assert body.features == FEATURES[name]
    assert set(body.early) <= dict(body.named_modules()).keys()


@every
def test_a_shrunk_one_is_of_the_same_classes_and_fast(name):
    body, x = shrunk(name), images(32)
    blocks = {type(module).__name__ for module in body.modules()}
    assert blocks & {"_DenseLayer", "Bottleneck", "BasicBlock"}
    body(x)
    start = time.perf_counter()
    body(x).sum().backward()
    assert time.perf_counter() - start < 1  # some hundredths of a second; more only where others use the machine
    assert sum(p.numel() for p in body.parameters()) < 200_000


@every
def test_a_body_is_built_again_from_its_architecture(name):
    body = shrunk(name, channels=5)
    body(images(8, 5))
    again = BODIES[name]((5, 64, 64), **body.architecture())
    again.load_state_dict(body.state_dict())
    assert torch.equal(again.eval()(images(3, 5)), body.eval()(images(3, 5)))


@every
@pytest.mark.parametrize("channels", [1, 8])
def test_channels_that_are_no_colours_are_taken_as_they_are(name, channels):
    body = shrunk(name, channels).eval()
    maps = body.network.get_submodule(body.first)
    seen = []
    maps.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    x = images(2, channels)
    assert body(x).shape == (2, body.features)
    assert torch.equal(seen[0], x)


@every
def test_everything_runs_with_channels_last(name):
    body, seen = shrunk(name), []
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            assert module.weight.is_contiguous(memory_format=torch.channels_last)
            module.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    body(images(4))
    assert len(seen) > 2
    assert all(maps.is_contiguous(memory_format=torch.channels_last) for maps in seen)


def test_random_first_layers_of_many_channels_are_drawn_as_those_of_colours_are():
    drawn = [BODIES["resnet18"]((c, 64, 64)).network.conv1.weight.detach().std() for c in (3, 8)]
    expected = (2 / (64 * 49)) ** 0.5
    assert all(abs(float(std) / expected - 1) < 0.1 for std in drawn)


@every
def test_checkpointed_activations_change_no_number(name):
    plain = shrunk(name)
    saving = copy.deepcopy(plain)
    saving.checkpoint_activations(True)
    assert plain.static
    assert not saving.static
    for body in (plain, saving):
        body(images(6)).square().sum().backward()
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-5)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, saving.state_dict()[name]), name
    saving.checkpoint_activations(False)
    assert saving.static


def test_checkpointing_keeps_less_for_the_way_back():
    def kept(on: bool) -> int:
        body, sizes = shrunk("resnet50"), []
        body.checkpoint_activations(on)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (sizes.append(t.numel()), t)[1], lambda t: t):
            body(images(8))
        return sum(sizes)

    assert kept(True) < 0.7 * kept(False)


@every
@pytest.mark.parametrize("checkpoints", [False, True])
def test_gated_norms_start_as_the_norms_they_replace_and_are_trained(name, checkpoints):
    body = shrunk(name)
    before = copy.deepcopy(body)
    gate_norms(body, 3)
    body.checkpoint_activations(checkpoints)
    mixture = torch.rand(6, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    with mixing(body, mixture):
        features = body(images(6))
    torch.testing.assert_close(features, before(images(6)), rtol=1e-4, atol=1e-4)
    features.square().sum().backward()
    norms = [parameter for part, parameter in body.named_parameters() if part.endswith("weight_deviations")]
    assert norms
    assert all(parameter.grad.abs().sum() > 0 for parameter in norms)


@every
def test_statistics_by_basis_are_the_batch_s_where_all_samples_have_the_same_gates(name):
    body = shrunk(name)
    before, same = copy.deepcopy(body), torch.rand(1, 3, generator=torch.Generator().manual_seed(1))
    gate_norms(body, 3, statistics="basis")
    body.checkpoint_activations(True)
    with mixing(body, same):
        features = body(images(6))
    torch.testing.assert_close(features, before(images(6)), rtol=1e-3, atol=1e-3)
    features.square().sum().backward()
    for mine, theirs in zip(body.buffers(), before.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs.expand_as(mine), rtol=1e-3, atol=1e-3)


@every
@pytest.mark.parametrize("checkpoints", [False, True])
def test_styles_are_mixed_after_early_blocks(name, checkpoints):
    body = shrunk(name)
    body.checkpoint_activations(checkpoints)
    x = images(8) * torch.linspace(0.1, 1, 8).reshape(8, 1, 1, 1)
    plain = copy.deepcopy(body)(x)
    mixer = mix_styles(Backbone(body, RandomFilters((3, 64, 64))), 1.0)
    with mixer.told(None):
        features = body(x)
        features.square().sum().backward()
    assert not torch.allclose(features, plain, atol=1e-4)
    assert all(p.grad.isfinite().all() for p in body.parameters())


@every
def test_gates_may_see_the_style_of_early_blocks(name):
    body = shrunk(name)
    backbone = Backbone(body, Style(body))
    seen = backbone.fit_view(images(6))
    assert seen.shape == (6, backbone.gating_features)
    assert seen.isfinite().all()


# Published weights.


def put_into_cache(name: str, model: nn.Module, tmp_path, monkeypatch, *, digits: str | None = None) -> str:
    """The network's weights in the cache, under a name like torchvision's; returns the file's name."""
    from gated_domains.backbones import published_weights

    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "draft")
    digest = hashlib.sha256((folder / "draft").read_bytes()).hexdigest()
    file = f"{name}-{digits or digest[:8]}.pth"
    (folder / "draft").rename(folder / file)
    monkeypatch.setitem(published_weights._FILES, name, (f"{name}-00000000.pth", file))
    return file


def test_weights_in_the_usual_cache_are_found_named_and_fingerprinted(tmp_path, monkeypatch):
    model = theirs("resnet18")
    file = put_into_cache("resnet18", model, tmp_path, monkeypatch)
    body = make_body("resnet18", (3, 64, 64))
    for name, value in body.network.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
    assert weights_note("resnet18") == f"the body resnet18 started from published weights ({file})"
    digest = weights_digest("resnet18", "true")
    assert len(digest) == 16
    assert digest.startswith(file[9:17])


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path, monkeypatch):
    put_into_cache("resnet18", theirs("resnet18"), tmp_path, monkeypatch, digits="deadbeef")
    with pytest.raises(DataError, match=r"SHA-256 is \w{64} and should begin with deadbeef; .*download it again"):
        make_body("resnet18", (3, 64, 64))


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_filters_of_colours_are_averaged_repeated_and_scaled_for_other_channels(channels, tmp_path):
    model = theirs("resnet18")
    torch.save(model.state_dict(), tmp_path / "own.pth")
    body = make_body("resnet18", (channels, 64, 64), pretrained=str(tmp_path / "own.pth"))
    own, colours = body.network.conv1.weight.detach(), model.conv1.weight.detach()
    expected = colours if channels == 3 else (colours.mean(1, keepdim=True) * 3 / channels).expand(-1, channels, -1, -1)
    torch.testing.assert_close(own, expected)


def test_widened_filters_answer_grey_images_as_before():
    weight, grey = torch.randn(4, 3, 5, 5), torch.randn(2, 1, 9, 9)
    before = nn.functional.conv2d(grey.expand(-1, 3, -1, -1), weight)
    after = nn.functional.conv2d(grey.expand(-1, 8, -1, -1), widened_filters(weight, 8))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


def test_weights_are_read_from_safetensors_and_from_files_with_older_names(tmp_path):
    model = theirs("densenet121")
    state = {}
    for name, value in model.state_dict().items():
        for part in ("norm", "conv"):
            if "denselayer" in name:
                name = name.replace(f".{part}1.", f".{part}.1.").replace(f".{part}2.", f".{part}.2.")
        if not name.endswith("num_batches_tracked"):
            state[name] = value.contiguous()
    assert "features.denseblock1.denselayer1.norm.1.weight" in state
    save_file(state, tmp_path / "old.safetensors")
    body = make_body("densenet121", (3, 64, 64), pretrained=str(tmp_path / "old.safetensors"))
    for name, value in body.network.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])


def test_a_missing_an_unknown_and_a_misshapen_weight_are_named(tmp_path):
    state = theirs("resnet18").state_dict()
    state["layer9.weight"] = torch.zeros(1)
    state["bn1.weight"] = torch.zeros(3)
    del state["layer1.0.conv1.weight"]
    torch.save(state, tmp_path / "own.pth")
    with pytest.raises(DataError) as refused:
        make_body("resnet18", (3, 64, 64), pretrained=str(tmp_path / "own.pth"))
    assert "missing: layer1.0.conv1.weight" in str(refused.value)
    assert "not known: layer9.weight" in str(refused.value)
    assert "of another shape: bn1.weight (3,), not (64,)" in str(refused.value)


class Trap:
    """What a file that is more than weights may hold."""

    def __reduce__(self):
        return (pytest.fail, ("a file of weights ran code",))


@pytest.mark.parametrize("content", [{"conv1.weight": 3}, [1, 2], Trap()], ids=["number", "list", "code"])
def test_a_file_that_holds_more_than_tensors_is_refused_and_not_run(content, tmp_path):
    torch.save(content, tmp_path / "own.pth")
    with pytest.raises(DataError, match=r"own\.pth (holds|cannot be read)"):
        make_body("resnet18", (3, 64, 64), pretrained=str(tmp_path / "own.pth"))


@pytest.mark.parametrize("name", ["own.pth", "own.safetensors"])
def test_a_file_cut_short_is_refused(name, tmp_path):
    state = {key: value.contiguous() for key, value in theirs("resnet18").state_dict().items()}
    (save_file if name.endswith("safetensors") else torch.save)(state, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"{name} cannot be read"):
        make_body("resnet18", (3, 64, 64), pretrained=str(tmp_path / name))


def test_images_that_are_too_small_for_a_densenet_are_refused_with_the_cure():
    assert make_body("densenet121", (3, 29, 40), pretrained="false").eval()(torch.zeros(1, 3, 29, 40)).shape == (
        1,
        1024,
    )
    with pytest.raises(DataError, match=r"28 x 40 pixels are too small .*enlarge them to 32 x 32"):
        make_body("densenet121", (3, 28, 40), pretrained="false")
