"""Fingerprints: the same for the same data everywhere, another for any change that could change a result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.inputs import Categories, Features, Images, Numbers, Table, fingerprint
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.readers import folders


def sites(**changed: Any) -> DomainDataset:
    given: dict[str, Any] = {
        "name": "sites",
        "inputs": Features(np.arange(12.0).reshape(6, 2)),
        "targets": np.array([0, 1, 0, 1, 0, 1]),
        "class_names": ("no", "yes"),
        "domains": np.array([0, 0, 0, 1, 1, 1]),
        "domain_names": ("a", "b"),
        "metadata": {"patient": np.array([1, 1, 2, 3, 3, 4]), "room": np.array([7, 7, 7, 8, 8, 8])},
        "official_test": np.array([True, False, False, False, False, True]),
        "scored_whole": frozenset({"a"}),
        "keep_together": "patient",
    }
    return DomainDataset(**{**given, **changed})


def changed_at(values: np.ndarray, row: int, value: object) -> np.ndarray:
    values = values.copy()
    values[row] = value
    return values


CHANGES: dict[str, Callable[[DomainDataset], DomainDataset]] = {
    "input": lambda data: data.with_inputs(Features(changed_at(data.inputs.values, 5, [10.0, 11.5]))),
    "order": lambda data: data.with_inputs(Features(data.inputs.values[::-1].copy())),
    "shape": lambda data: data.with_inputs(Images(np.zeros((6, 2, 8, 1), np.uint8))),
    "target": lambda data: replace(data, targets=changed_at(data.targets, 3, 0)),
    "class name": lambda data: replace(data, class_names=("no", "Yes")),
    "one more class": lambda data: replace(data, class_names=("no", "yes", "maybe")),
    "domain": lambda data: replace(data, domains=changed_at(data.domains, 3, 0)),
    "domain name": lambda data: replace(data, domain_names=("a", "c")),
    "no domains": lambda data: replace(data, domains=None, domain_names=()),
    "official test": lambda data: replace(data, official_test=changed_at(data.official_test, 2, True)),
    "no official test": lambda data: replace(data, official_test=None),
    "nothing set aside": lambda data: replace(data, official_test=np.zeros(6, np.bool_)),
    "scored whole": lambda data: replace(data, scored_whole=frozenset({"b"})),
    "nothing kept together": lambda data: replace(data, keep_together=None),
    "kept together otherwise": lambda data: replace(data, keep_together="room"),
    "a group": lambda data: replace(data, metadata={"patient": np.array([1, 1, 2, 2, 3, 4])}),
    "numbers, not classes": lambda data: replace(data, class_names=None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_any_change_that_matters_gives_another(change):
    assert fingerprint(change(sites())) != fingerprint(sites())


def test_all_these_changes_give_different_ones():
    assert len({fingerprint(change(sites())) for change in CHANGES.values()}) == len(CHANGES)


def test_names_notes_and_metadata_that_nothing_depends_on_change_nothing():
    data = sites()
    renamed = replace(data, name="others", notes=("made by hand",))
    regrouped = replace(data, metadata={**data.metadata, "room": np.zeros(6)})
    assert fingerprint(renamed) == fingerprint(regrouped) == fingerprint(data)


def test_the_width_of_whole_numbers_changes_nothing():
    data = sites()
    assert fingerprint(replace(data, targets=data.targets.astype(np.uint8))) == fingerprint(data)


def test_it_is_thirty_two_hexadecimal_digits_that_stay():
    """Folders of years ago are named by it: a new value here makes all of them strangers."""
    assert fingerprint(sites()) == "5249b3601e7d567f66bac5a409fb77f0"


def test_it_is_the_same_in_every_process(tmp_path):
    (tmp_path / "t.csv").write_text("x,stain,site,y\n1,a,k,0\n2,b,k,1\n3,a,l,0\n4,b,l,1\n")
    code = (
        "from gated_domains.data.loading import load_data\n"
        "from gated_domains.data.inputs import fingerprint\n"
        f"print(fingerprint(load_data({str(tmp_path / 't.csv')!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == fingerprint(load_data(tmp_path / "t.csv"))


def table(*columns: Numbers | Categories) -> str:
    return fingerprint(DomainDataset(name="t", inputs=Table(columns), targets=np.array([0, 1]), class_names=("n", "y")))


def test_of_a_table_it_tells_columns_kinds_and_levels():
    codes = np.array([0, 1], np.int32)
    found = [
        table(Categories("stain", codes, ("H", "P"))),
        table(Categories("stain", codes, ("H", "Q"))),
        table(Categories("dye", codes, ("H", "P"))),
        table(Numbers("stain", np.array([0.0, 1.0]))),
        table(Numbers("stain", np.array([0.0, np.nan]))),
    ]
    assert len(set(found)) == len(found)
    assert table(Categories("stain", codes, ("H", "P"))) == found[0]


def test_a_table_moved_and_renamed_keeps_it(tmp_path):
    text = "age,stain,site,y\n61.5,H&E,Köln,0\n40,,Lyon,1\n,PAS,Köln,1\n"
    for path in (tmp_path / "one.csv", tmp_path / "deep" / "two.csv"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    reading = Reading(target="y", domain="site")
    one, two = (fingerprint(load_data(path, reading)) for path in (tmp_path / "one.csv", tmp_path / "deep" / "two.csv"))
    assert one == two
    assert fingerprint(load_data(tmp_path / "one.csv", Reading(target="y"))) != one


def image_folder(root: Path) -> Path:
    for row, place in enumerate(("a/cat", "a/dog", "b/cat", "b/dog")):
        (root / place).mkdir(parents=True)
        Image.fromarray(np.full((8, 8, 3), 10 * row, np.uint8)).save(root / place / "1.png")
    return root


def test_images_are_the_same_in_memory_and_on_disk_but_not_at_another_size(tmp_path, monkeypatch):
    root = image_folder(tmp_path / "pets")
    in_memory = fingerprint(load_data(root))
    smaller = fingerprint(load_data(root, Reading(image_size=4)))
    monkeypatch.setattr(folders, "available_bytes", lambda: 0)
    assert fingerprint(load_data(root)) == in_memory != smaller


def test_an_image_that_changed_is_noticed(tmp_path):
    root = image_folder(tmp_path / "pets")
    before = fingerprint(load_data(root))
    Image.fromarray(np.full((8, 8, 3), 99, np.uint8)).save(root / "b" / "dog" / "1.png")
    assert fingerprint(load_data(root)) != before
