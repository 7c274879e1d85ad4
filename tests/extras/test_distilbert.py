"""DistilBERT as a body: the first token's last state, blind to padding, and weights that are whole or refused."""

from __future__ import annotations

import copy
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from gated_domains.backbones import BODIES
from gated_domains.backbones.bodies import make_body, weights_digest, weights_note
from gated_domains.data.errors import DataError

pytestmark = pytest.mark.extras

ABOUT = {"vocabulary": 60, "pad": 0}


@pytest.fixture(autouse=True)
def nothing_is_downloaded(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def tokens(rows: int = 3, length: int = 10, *, seed: int = 0) -> torch.Tensor:
    return torch.randint(1, 60, (rows, length), generator=torch.Generator().manual_seed(seed))


def shrunk(length: int = 32):
    return make_body("distilbert", (length,), shrunk=True, about=ABOUT)


@pytest.fixture
def published(tmp_path):
    """A folder such as a published one, of a small network with a head for something else."""
    import transformers

    config = transformers.DistilBertConfig(
        vocab_size=60, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=40, dropout=0.2
    )
    torch.manual_seed(5)
    transformers.DistilBertForMaskedLM(config).save_pretrained(tmp_path / "published")
    return tmp_path / "published"


def test_features_are_the_last_state_of_the_first_token():
    body = shrunk().eval()
    x = tokens()
    with torch.no_grad():
        states = body.network(input_ids=x, attention_mask=torch.ones_like(x)).last_hidden_state
        torch.testing.assert_close(body(x), states[:, 0])
    assert body.features == 64
    assert body.network.config._attn_implementation == "sdpa"


def test_padding_does_not_change_what_a_text_gives():
    body = shrunk().eval()
    x = tokens(3, 7)
    x[1, 4:] = 0
    padded = torch.nn.functional.pad(x, (0, 9))
    with torch.no_grad():
        torch.testing.assert_close(body(padded), body(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(body(x)[1:2], body(x[1:2, :4]), rtol=1e-4, atol=1e-5)


def test_the_order_of_tokens_and_every_token_count():
    body = shrunk().eval()
    x = tokens(1)
    with torch.no_grad():
        assert not torch.allclose(body(x), body(x.flip(1)), atol=1e-4)
        changed = x.clone()
        changed[0, -1] = x[0, -1] % 59 + 1
        assert not torch.allclose(body(x), body(changed), atol=1e-6)


def test_a_body_is_built_again_from_its_architecture_which_is_plain_json():
    body = shrunk()
    again = BODIES["distilbert"]((32,), **json.loads(json.dumps(body.architecture())))
    again.load_state_dict(body.state_dict())
    assert torch.equal(again.eval()(tokens()), body.eval()(tokens()))
    assert (again.vocabulary, again.pad) == (60, 0)


def test_a_shrunk_one_has_two_layers_and_room_for_the_longest_text():
    body = shrunk(100)
    assert body.architecture() | {"layers": 2, "width": 64, "positions": 100} == body.architecture()
    assert body(tokens(2, 100)).shape == (2, 64)


def test_checkpointed_activations_change_no_gradient():
    plain = make_body("distilbert", (32,), shrunk=True, about=ABOUT)
    saving = copy.deepcopy(plain)
    saving.checkpoint_activations(True)
    grads = []
    for body in (plain, saving):
        torch.manual_seed(7)  # dropout
        body.train()(tokens()).square().sum().backward()
        grads.append({name: p.grad for name, p in body.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    for name, gradient in grads[0].items():
        torch.testing.assert_close(grads[1][name], gradient, rtol=1e-4, atol=1e-5)
    saving.checkpoint_activations(False)


def test_published_weights_give_what_the_library_gives_with_them(published):
    import transformers

    body = make_body("distilbert", (40,), pretrained=str(published), about=ABOUT).eval()
    theirs = transformers.DistilBertModel.from_pretrained(str(published), local_files_only=True).eval()
    x = tokens()
    with torch.no_grad():
        torch.testing.assert_close(body(x), theirs(input_ids=x).last_hidden_state[:, 0])
    assert body.architecture()["dropout"] == 0.2
    note = weights_note("distilbert", str(published))
    assert note == "the body distilbert started from published/model.safetensors"
    assert len(weights_digest("distilbert", str(published))) == 16


def test_with_the_pre_classifier_features_are_those_of_the_librarys_classifier_before_its_head(published):
    import transformers

    body = make_body("distilbert-classifier", (40,), pretrained=str(published), about=ABOUT).eval()
    weight, bias = body.pre_classifier[0].weight, body.pre_classifier[0].bias
    assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.1)  # not published: drawn anew
    assert not bias.any()
    theirs = transformers.DistilBertForSequenceClassification.from_pretrained(str(published), local_files_only=True)
    theirs.pre_classifier.load_state_dict({"weight": weight.detach(), "bias": bias.detach()})
    seen = []
    theirs.classifier.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with torch.no_grad():
        theirs.eval()(input_ids=tokens())
        torch.testing.assert_close(body(tokens()), seen[0])
        dropped = body.train().pre_classifier[1:](torch.ones(100, 100))
    assert theirs.config.seq_classif_dropout == 0.2
    assert float((dropped == 0).double().mean()) == pytest.approx(0.2, abs=0.02)
    again = BODIES["distilbert-classifier"]((40,), **json.loads(json.dumps(body.architecture())))
    again.load_state_dict(body.state_dict())


def test_weights_in_the_usual_cache_are_found(published, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(DataError, match=r"model\.safetensors and config\.json\) are not in .*hub.*--pretrained false"):
        make_body("distilbert", (40,), about=ABOUT)
    held = tmp_path / "hub" / "models--distilbert--distilbert-base-uncased"
    (held / "refs").mkdir(parents=True)
    (held / "refs" / "main").write_text("abc")
    shutil.copytree(published, held / "snapshots" / "abc")
    assert make_body("distilbert", (40,), about=ABOUT).features == 32
    assert "published weights (distilbert-base-uncased)" in weights_note("distilbert")


def test_a_tokenizer_of_another_vocabulary_is_refused(published):
    with pytest.raises(DataError, match=r"knows 61 tokens .* 60: numbers would stand for other words"):
        make_body("distilbert", (40,), pretrained=str(published), about={"vocabulary": 61, "pad": 0})


def test_weights_that_are_not_whole_are_refused_and_named(published):
    state = load_file(published / "model.safetensors")
    del state["distilbert.transformer.layer.1.attention.q_lin.weight"]
    save_file(state, published / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"not whole \(missing: transformer\.layer\.1\.attention\.q_lin\.weight"):
        make_body("distilbert", (40,), pretrained=str(published), about=ABOUT)


def test_weights_of_another_shape_are_refused_and_named(published):
    state = load_file(published / "model.safetensors")
    state["distilbert.embeddings.LayerNorm.weight"] = torch.ones(16)
    save_file(state, published / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"of another shape: embeddings\.LayerNorm\.weight"):
        make_body("distilbert", (40,), pretrained=str(published), about=ABOUT)


def test_a_file_cut_short_is_refused(published):
    content = (published / "model.safetensors").read_bytes()
    (published / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="cannot be read"):
        make_body("distilbert", (40,), pretrained=str(published), about=ABOUT)


def test_weights_of_another_family_are_refused(tmp_path):
    import transformers

    config = transformers.BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    with pytest.raises(DataError, match=r"holds a bert .*distilbert-base-uncased"):
        make_body("distilbert", (40,), pretrained=str(tmp_path / "bert"), about=ABOUT)


def test_texts_longer_than_there_are_places_are_refused_with_the_cure():
    with pytest.raises(DataError, match=r"600 tokens are longer than the 512 .*--tokens 512"):
        BODIES["distilbert"]((600,))
    with pytest.raises(DataError, match="a width of 64 cannot be shared out among 3 heads"):
        BODIES["distilbert"]((8,), width=64, heads=3)
