"""Saved estimators come back to the bit; what is damaged, changed, newer or not ours is refused, and no code is run."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load, save

from gated_domains import __version__
from gated_domains.data.errors import DataError
from gated_domains.estimators import ERMClassifier, ERMRegressor, GDUClassifier, load_estimator, saving
from made_estimators import KINDS, fitted, made, made_table

pytestmark = pytest.mark.usefixtures("without_shape_checks")

CARD, WEIGHTS = "estimator.json", "estimator.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved classifier, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("saved")
    fitted(GDUClassifier, tol=1e-2, class_weight={0: 1.0, 1: 2.0}).save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    for name in (CARD, WEIGHTS):
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    return tmp_path


def signed(folder, card, content=None):
    """Write a card as somebody would who knows how the digest is made."""
    content = (folder / WEIGHTS).read_bytes() if content is None else content
    card.pop("sha256", None)
    card["sha256"] = saving._digest(card, content)
    (folder / CARD).write_text(json.dumps(card))
    (folder / WEIGHTS).write_bytes(content)


def equal(first, second, x) -> None:
    found, expected = first.predicted(x), second.predicted(x)
    assert found.arrays().keys() == expected.arrays().keys()
    for name, values in expected.arrays().items():
        assert values.dtype == getattr(found, name).dtype
        np.testing.assert_array_equal(getattr(found, name), values)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_comes_back_to_the_bit(name, solver, tmp_path):
    table = made_table()
    fit = fitted(KINDS[name], table, solver=solver, epochs=2, tol=1e-2)
    fit.save(tmp_path / "new" / "folder")
    back = load_estimator(str(tmp_path / "new" / "folder"))
    assert type(back) is KINDS[name]
    assert back.get_params() == fit.get_params()
    assert back.network_.dtype == (torch.float64 if solver == "lbfgs" else torch.float32)
    equal(back, fit, table.x)
    np.testing.assert_array_equal(back.predict(table.x), fit.predict(table.x))
    for kept in ("n_features_in_", "n_iter_", "solver_", "loss_curve_", "validation_curve_"):
        assert getattr(back, kept) == getattr(fit, kept)
    assert back.domains_.tolist() == fit.domains_.tolist()
    assert back.domain_counts_.tolist() == fit.domain_counts_.tolist()
    back.save(tmp_path / "again")
    for file in (CARD, WEIGHTS):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "new" / "folder" / file).read_bytes()


@pytest.mark.parametrize("settings", [{"shared": False}, {"coverage": False}, {"gate": "projection"}, {"gate": "mmd"}])
def test_every_form_of_units_comes_back(settings, tmp_path):
    fit = fitted(GDUClassifier, tol=1e-2, learn_bases=True, **settings)
    fit.save(tmp_path)
    back = load_estimator(tmp_path)
    equal(back, fit, made_table().x)
    assert back.network_.units.bases.requires_grad
    assert (back.sigma_, back.kappa_, back.num_bases_) == (fit.sigma_, fit.kappa_, fit.num_bases_)


@pytest.mark.parametrize(
    "names",
    [
        np.array(["a", "ü", "long name"]),
        np.array([3, 7, 11]),
        np.array([-1, 2, 3], np.int8),
        np.array(["x", "y", "z"], object),
        np.array([1.0, 2.0, 4.0]),
    ],
    ids=["text", "int64", "int8", "object", "float"],
)
def test_classes_keep_names_and_kind(names, tmp_path):
    table = made_table()
    fit = made(ERMClassifier).fit(table.x, names[table.classes])
    fit.save(tmp_path)
    back = load_estimator(tmp_path)
    assert back.classes_.dtype == fit.classes_.dtype
    assert back.classes_.tolist() == fit.classes_.tolist()
    assert back.predict(table.x).tolist() == fit.predict(table.x).tolist()


def test_yes_and_no_come_back(tmp_path):
    table = made_table(classes=2)
    fit = made(ERMClassifier, class_weight={True: 2.0, False: 1.0}).fit(table.x, table.classes == 1)
    fit.save(tmp_path)
    back = load_estimator(tmp_path)
    assert back.classes_.dtype == bool
    assert back.class_weight == {True: 2.0, False: 1.0}


def test_names_of_columns_come_back(tmp_path):
    table = made_table()
    x = pd.DataFrame(table.x, columns=["a", "b", "c", "d"])
    made(ERMClassifier).fit(x, table.classes).save(tmp_path)
    back = load_estimator(tmp_path)
    assert back.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names should match"):
        back.predict(x.rename(columns={"a": "z"}))


def test_several_columns_of_targets_come_back(tmp_path):
    table = made_table()
    for y in (np.stack([table.numbers] * 2, 1), table.numbers[:, None], table.numbers):
        fit = made(ERMRegressor).fit(table.x, y)
        fit.save(tmp_path)
        assert load_estimator(tmp_path).predict(table.x).shape == fit.predict(table.x).shape == y.shape


def test_settings_of_numpy_and_generators_are_written_as_what_they_say(tmp_path):
    settings = {
        "alpha": np.float32(0.5),
        "max_iter": np.int64(50),
        "standardize": np.bool_(True),
        "class_weight": {np.int64(0): np.float64(2.0), 1: 1, 2: 1.0},
        "random_state": np.random.RandomState(3),
    }
    fit = fitted(ERMClassifier, **settings)
    fit.save(tmp_path)
    back = load_estimator(tmp_path)
    assert back.get_params()["alpha"] == 0.5
    assert (back.max_iter, back.standardize, back.random_state) == (50, True, None)
    assert back.class_weight == {0: 2.0, 1: 1.0, 2: 1.0}
    equal(back, fit, made_table().x)


def test_loading_leaves_the_generators_alone(folder):
    before = torch.get_rng_state()
    load_estimator(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_unpickled(folder, monkeypatch):
    (folder / "estimator.pkl").write_bytes(b"cposix\nsystem\n(S'exit'\ntR.")
    (folder / "estimator.pt").write_bytes(b"\x80\x02")

    def never(*_, **__):
        raise AssertionError("something was unpickled")

    for module in (pickle, torch):
        monkeypatch.setattr(module, "load", never)
    monkeypatch.setattr(pickle, "loads", never)
    monkeypatch.setattr(pickle, "Unpickler", never)
    load_estimator(folder)


@pytest.mark.parametrize("after", ["weights", "card"])
def test_an_interrupted_save_leaves_an_estimator(folder, after, monkeypatch):
    old, new = load_estimator(folder), fitted(GDUClassifier, tol=1e-2, num_bases=2)
    x = made_table().x
    original = saving.written_whole

    def interrupted(path):
        if path.name == CARD:
            raise KeyboardInterrupt
        return original(path)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if after == "weights":
            patch.setattr(saving, "written_whole", interrupted)
        else:
            patch.setattr(saving.os, "replace", replaced_until(stop))
        with pytest.raises(KeyboardInterrupt):
            new.save(folder)
    equal(load_estimator(folder), old if after == "weights" else new, x)
    new.save(folder)
    equal(load_estimator(folder), new, x)
    assert sorted(os.listdir(folder)) == [CARD, WEIGHTS]


def test_a_save_that_is_interrupted_twice_leaves_the_estimator_of_the_last_card(folder, monkeypatch):
    second, third = (fitted(GDUClassifier, tol=1e-2, num_bases=count) for count in (2, 1))

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(saving.os, "replace", replaced_until(stop))
        with pytest.raises(KeyboardInterrupt):
            second.save(folder)
    original = saving.written_whole
    with monkeypatch.context() as patch:
        patch.setattr(saving, "written_whole", lambda path: stop() if path.name == CARD else original(path))
        with pytest.raises(KeyboardInterrupt):
            third.save(folder)
    equal(load_estimator(folder), second, made_table().x)


def replaced_until(stop):
    """os.replace, up to the one that gives the weights their name."""
    original = os.replace

    def replace(source, target):
        return stop() if os.path.basename(target) == WEIGHTS else original(source, target)

    return replace


def test_what_cannot_be_written_leaves_the_older_one(folder):
    old, x = load_estimator(folder), made_table().x
    for broken in ("sigma", "loss_curve_"):
        new = fitted(GDUClassifier, tol=1e-2)
        setattr(new, broken, float("nan"))
        with pytest.raises(ValueError, match=r"JSON|nan"):
            new.save(folder)
        equal(load_estimator(folder), old, x)
    named = fitted(ERMClassifier)
    named.classes_ = np.array([b"a", b"b", b"c"])
    with pytest.raises(DataError, match="name classes and domains by numbers or text"):
        named.save(folder)
    equal(load_estimator(folder), old, x)


class Own(ERMClassifier):
    """Somebody's own estimator."""


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    with pytest.raises(DataError, match="Own is not an estimator of ours"):
        Own().fit(np.eye(4), [0, 1, 0, 1]).save(tmp_path)
    with pytest.raises(ValueError, match="not fitted"):
        ERMClassifier().save(tmp_path)
    assert not list(tmp_path.iterdir())


# -- what is refused ---------------------------------------------------------------------------------------------------


def every_field(card, path=()):
    for key, value in card.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from every_field(value, (*path, key))


def changed(value):
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    return [*value, 1] if isinstance(value, list) else {}


def test_every_field_that_is_changed_or_missing_is_seen(folder):
    text = (folder / CARD).read_text()
    fields = list(every_field(json.loads(text)))
    assert len(fields) > 40
    for field in fields:
        for change in ("other", "gone"):
            card = json.loads(text)
            place = card
            for key in field[:-1]:
                place = place[key]
            if change == "gone":
                del place[field[-1]]
            else:
                place[field[-1]] = changed(place[field[-1]])
            (folder / CARD).write_text(json.dumps(card))
            with pytest.raises(DataError, match=r"save the estimator again|update it"):
                load_estimator(folder)


def test_every_damaged_byte_of_the_weights_is_seen(folder):
    content = (folder / WEIGHTS).read_bytes()
    for place in range(0, len(content), max(1, len(content) // 40)):
        (folder / WEIGHTS).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError, match="not what was saved together"):
            load_estimator(folder)


@pytest.mark.parametrize("name", [CARD, WEIGHTS])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_files_cut_short_are_refused(folder, name, share):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match="cut short"):
        load_estimator(folder)


def test_missing_files_are_named(folder, tmp_path):
    (folder / WEIGHTS).unlink()
    with pytest.raises(DataError, match=r"estimator\.safetensors is not there"):
        load_estimator(folder)
    (folder / CARD).unlink()
    (folder / "model.pkl").write_bytes(pickle.dumps(1))
    with pytest.raises(DataError, match=r"holds no saved estimator .* save one with estimator\.save"):
        load_estimator(folder)
    with pytest.raises(DataError, match="holds no saved estimator"):
        load_estimator(tmp_path / "nowhere")


def test_a_newer_format_is_named_with_both_versions(folder):
    card = json.loads((folder / CARD).read_text())
    card["format"], card["gated_domains"] = 7, "9.9.9"
    signed(folder, card)
    with pytest.raises(DataError) as refused:
        load_estimator(folder)
    for word in ("9.9.9", "format 7", __version__, "reads format 2", "update"):
        assert word in str(refused.value)


@pytest.mark.parametrize("text", ["[1, 2]", "null", '"GDUClassifier"', "{", "", "[" * 100_000, "{}", "\x00"])
def test_a_card_that_is_no_card_is_refused(folder, text):
    (folder / CARD).write_text(text)
    with pytest.raises(DataError, match="save the estimator again"):
        load_estimator(folder)


def put(card, *path, value):
    for key in path[:-1]:
        card = card[key]
    card[path[-1]] = value


CHANGES = {
    "os.system": (("estimator",), "os.system"),
    "Pipeline": (("estimator",), "Pipeline"),
    "BaseEstimator": (("estimator",), "sklearn.base.BaseEstimator"),
    "a list for a name": (("estimator",), ["GDUClassifier"]),
    "another kind": (("estimator",), "ERMClassifier"),
    "a setting that is none": (("settings", "__class__"), "x"),
    "settings that are none": (("settings",), [1]),
    "a gate that is none": (("settings", "gate"), "lambda"),
    "another form": (("settings", "shared"), False),
    "huge width": (("values", "n_features_in_"), 10**12),
    "too huge a width": (("values", "n_features_in_"), 10**30),
    "no width": (("values", "n_features_in_"), -1),
    "a width in words": (("values", "n_features_in_"), "four"),
    "huge number of bases": (("num_bases",), 10**12),
    "huge bases": (("settings", "basis_size"), 10**12),
    "more classes": (("arrays", "classes_", "values"), list(range(1000))),
    "no classes": (("arrays", "classes_"), {"kind": "text"}),
    "classes of code": (("arrays", "classes_", "kind"), "O"),
    "huge text": (("arrays", "classes_", "kind"), "<U1000000000"),
    "records": (("arrays", "classes_", "kind"), "f8,f8"),
    "no precision": (("precision",), "float8"),
    "a class weight that is none": (("settings", "class_weight"), {"classes": 3}),
    "the same class twice": (("arrays", "classes_", "values"), [0, 0, 1]),
    "too few names of columns": (("arrays", "feature_names_in_"), {"kind": "object", "values": ["a"]}),
    "a count of too many domains": (("arrays", "domain_counts_", "values"), [1]),
    "a weight in words": (("settings", "alpha"), "x"),
    "a device that is none": (("settings", "device"), "/dev/x"),
    "a solver that is none": (("settings", "solver"), "lambda"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_card_made_by_somebody_else_is_refused_even_with_the_right_digest(folder, change):
    path, value = CHANGES[change]
    card = json.loads((folder / CARD).read_text())
    put(card, *path, value=value)
    signed(folder, card)
    with pytest.raises(DataError, match=r"there is no estimator|is damaged"):
        load_estimator(folder)


@pytest.mark.parametrize("how", ["other shape", "missing", "surplus", "no tensors", "not a number"])
def test_weights_made_by_somebody_else_are_refused(folder, how):
    card = json.loads((folder / CARD).read_text())
    tensors = load((folder / WEIGHTS).read_bytes())
    if how == "other shape":
        tensors["units.bases"] = tensors["units.bases"][:1].clone()
    elif how == "missing":
        del tensors["units.bases"]
    elif how == "surplus":
        tensors["more"] = torch.zeros(1)
    elif how == "not a number":
        tensors["units.bases"][0, 0, 0] = float("nan")
    content = b"\x80\x04cposix" if how == "no tensors" else save(tensors)
    signed(folder, card, content)
    with pytest.raises(DataError, match="is damaged"):
        load_estimator(folder)
