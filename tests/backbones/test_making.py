"""Bodies by name: which weights they start from, what a table says of those, and what is refused."""

from __future__ import annotations

import sys

import pytest
import torch

from gated_domains.backbones import BODIES, MLP, SmallCNN, default_body
from gated_domains.backbones.bodies import make_body, weights_digest, weights_note
from gated_domains.data.errors import DataError

LIBRARIES = {
    "densenet121": ("torchvision", (3, 64, 64)),
    "resnet50": ("torchvision", (3, 64, 64)),
    "resnet18": ("torchvision", (8, 64, 64)),
    "distilbert": ("transformers", (32,)),
    "distilbert-classifier": ("transformers", (32,)),
    "gin": ("torch_geometric", (200,)),
}
WITHOUT_WEIGHTS = ["digits", "small", "mlp", "identity", "gin"]


def test_a_body_without_published_weights_is_the_one_in_the_registry():
    torch.manual_seed(3)
    made = make_body("small", (3, 16, 16))
    torch.manual_seed(3)
    expected = SmallCNN((3, 16, 16))
    assert type(made) is SmallCNN
    for name, value in made.state_dict().items():
        assert torch.equal(value, expected.state_dict()[name])


def test_what_a_body_needs_not_know_is_not_asked_for():
    assert type(make_body("mlp", (7,), about={"vocabulary": 40, "pad": 0})) is MLP
    assert type(make_body("mlp", (7,), shrunk=True)) is MLP


@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_weights_that_nobody_published_are_refused_with_the_cure(name):
    for pretrained in ("true", "weights.safetensors"):
        with pytest.raises(DataError, match=f"no published weights of the body {name}.*leave it out"):
            make_body(name, (3, 16, 16), pretrained=pretrained)
    assert weights_digest(name) is None
    assert weights_digest(name, "false") is None


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_shrunk_body_starts_from_random_weights_and_a_table_says_so(name):
    assert "shrunk to 2" in weights_note(name, "auto", True)
    assert "random weights" in weights_note(name, "auto", True)
    assert weights_digest(name, "auto", True) is None
    if name != "gin":
        with pytest.raises(DataError, match=f"shrunk {name} has no published weights.*'true'"):
            weights_note(name, "true", True)


def test_a_table_says_nothing_of_bodies_that_are_always_trained_from_random_weights():
    assert weights_note("small") is weights_note("mlp", "false") is None
    assert weights_note("resnet50", "false") == "the body resnet50 is trained from random weights"
    assert weights_note("gin") == "the body gin is trained from random weights"


@pytest.mark.parametrize(
    ("name", "file"), [("densenet121", "densenet121-a639ec97.pth"), ("resnet50", "resnet50-0676ba61.pth")]
)
@pytest.mark.parametrize("pretrained", ["auto", "true"])
def test_weights_that_are_not_there_are_an_error_that_names_the_file_and_the_way_without(
    name, file, pretrained, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(DataError, match=f"{tmp_path}/hub/checkpoints/{file}; .*--pretrained false"):
        make_body(name, (3, 64, 64), pretrained=pretrained)


def test_a_path_that_is_not_there_or_no_weights_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.pth: there is no such file"):
        make_body("resnet18", (3, 64, 64), pretrained=str(tmp_path / "nowhere.pth"))
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(DataError, match=r"\.safetensors, \.pth or \.pt, not '\.bin'"):
        make_body("resnet18", (3, 64, 64), pretrained=str(tmp_path / "weights.bin"))
    with pytest.raises(DataError, match=r"config\.json, model\.safetensors is not there.*--pretrained false"):
        make_body("distilbert", (32,), pretrained=str(tmp_path))


def test_a_name_that_is_not_known_is_refused_with_the_nearest():
    with pytest.raises(DataError, match="no body 'resnet5'; did you mean 'resnet50'"):
        make_body("resnet5", (3, 64, 64))


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_not_installed_is_named_with_the_line_that_installs_it(name, monkeypatch):
    library, shape = LIBRARIES[name]
    for module in [module for module in sys.modules if module.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf"{library}, which is not installed: pip install 'gated-domains\[wilds\]'"):
        make_body(name, shape, pretrained="false")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        *[("images", "small"), ("bands", "small"), ("table", "mlp"), ("features", "mlp"), ("words", "mlp")],
        *[("bits", "mlp"), ("tokens", "distilbert"), ("graphs", "gin")],
    ],
)
def test_every_kind_of_inputs_has_a_body_that_takes_it(kind, body):
    assert default_body(kind) == body
    taken = {"bands": "images", "tokens": "tokens", "graphs": "graphs", "images": "images"}.get(kind, "vectors")
    assert BODIES[body].takes == taken


@pytest.mark.parametrize("name", ["densenet121", "distilbert", "gin"])
def test_samples_of_other_dimensions_are_refused_before_any_library_is_asked(name):
    shape = (25,) if BODIES[name].takes == "images" else (3, 8, 8)
    with pytest.raises(DataError, match=f"takes {BODIES[name].takes}, and these are"):
        BODIES[name](shape)


def test_the_bodies_that_are_large_and_those_whose_steps_no_graph_records_say_so():
    assert {name for name, body in BODIES.items() if body.large} == {
        "densenet121",
        "resnet50",
        "resnet18",
        "efficientnet-lite0",
        "distilbert",
        "distilbert-classifier",
    }
    unrecorded = {"distilbert", "distilbert-classifier", "gin"}
    assert {name for name, body in BODIES.items() if not body.static} == unrecorded


def test_an_mlp_is_built_again_from_its_architecture():
    body = MLP((7,), hidden=(9, 5), norm=False, dropout=0).eval()
    again = BODIES["mlp"]((7,), **body.architecture()).eval()
    again.load_state_dict(body.state_dict())
    x = torch.randn(3, 7)
    assert torch.equal(again(x), body(x))
    assert SmallCNN((3, 16, 16)).architecture() == {}


def test_small_bodies_have_no_activations_worth_computing_twice():
    SmallCNN((3, 16, 16)).checkpoint_activations(False)
    with pytest.raises(DataError, match=r"SmallCNN is small.*leave checkpoint_activations out"):
        SmallCNN((3, 16, 16)).checkpoint_activations(True)
