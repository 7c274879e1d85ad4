"""``.npz`` files: found by any of their usual names, never unpickled, and refused before they can do harm."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data import npz
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Images
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.npz import read_arrays

REAL = Path(__file__).parents[3] / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="real data (../shared/data) are not here")

VALUES = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 2])
SITES = np.array(["b", "a", "b", "a", "b", "a"])
PICTURES = np.random.default_rng(1).integers(256, size=(6, 4, 5, 3), dtype=np.uint8)


def saved(path: Path, **contents: object) -> Path:
    np.savez(path, **contents)
    return path


def raw_npy(header: str, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """An .npy file that says of itself whatever it likes."""
    padded = header + " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY" + version + len(padded).to_bytes(2, "little") + padded.encode("latin-1") + content


def zip_of(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def npy(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


# -- one file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", ["X", "features", "x"])
@pytest.mark.parametrize("labels", ["y", "labels", "targets", "label", "target"])
@pytest.mark.parametrize("domains", ["domain", "domains", "subjects", "subject", "groups"])
def test_every_usual_name_is_known(tmp_path, inputs, labels, domains):
    data = load_data(saved(tmp_path / "d.npz", **{inputs: VALUES, labels: LABELS, domains: SITES}))
    assert isinstance(data.inputs, Features)
    np.testing.assert_array_equal(data.inputs.values, VALUES)
    assert data.targets.tolist() == LABELS.tolist()
    assert data.class_names == ("0", "1", "2")
    assert data.domain_names == ("a", "b")
    assert data.domains.tolist() == [1, 0, 1, 0, 1, 0]


def test_a_compressed_file_is_read(tmp_path):
    np.savez_compressed(tmp_path / "d.npz", X=VALUES, y=LABELS)
    np.testing.assert_array_equal(load_data(tmp_path / "d.npz").inputs.values, VALUES)


def test_domains_are_optional(tmp_path):
    data = load_data(saved(tmp_path / "d.npz", X=VALUES, y=LABELS))
    assert data.domains is None
    assert data.domain_names == ()


@pytest.mark.parametrize("names", [["left", "right"], [b"left", b"right"]], ids=["text", "bytes"])
def test_names_of_domains_and_classes_are_given_to_indices(tmp_path, names):
    where = np.array([1, 1, 0, 0, 1, 0])
    kinds = np.array([b"cat", b"dog", b"cow"] if isinstance(names[0], bytes) else ["cat", "dog", "cow"])
    path = saved(tmp_path / "d.npz", X=VALUES, y=LABELS, domains=where, domain_names=names, class_names=kinds)
    data = load_data(path)
    assert data.domain_names == ("left", "right")
    assert data.domains.tolist() == where.tolist()
    assert data.class_names == ("cat", "dog", "cow")


def test_positive_classes_are_named_by_their_class_names(tmp_path):
    path = saved(tmp_path / "d.npz", X=VALUES, y=LABELS, class_names=["cat", "dog", "cow"])
    data = load_data(path, Reading(positive=("dog", "cow")))
    assert data.class_names == ("cat", "cow or dog")
    assert data.targets.tolist() == [0, 1, 1, 0, 1, 1]


def test_labels_outside_the_class_names_are_named_by_their_row(tmp_path):
    path = saved(tmp_path / "d.npz", X=VALUES, y=np.array([0, 1, 7, 0, 1, 0]), class_names=["cat", "dog"])
    with pytest.raises(DataError, match=r"d.npz: label 7 of row 3 is outside 0 to 1 \(such rows: 1;.*cat, dog"):
        load_data(path)
    with pytest.raises(DataError, match="outside 0 to 1"):
        load_data(path, Reading(positive=("dog",)))


def test_negative_domains_are_named_by_their_row(tmp_path):
    where = np.array([0, 1, 0, -1, -1, 0])
    path = saved(tmp_path / "d.npz", X=VALUES, y=LABELS, domain=where, domain_names=["l", "r"])
    with pytest.raises(DataError, match=r"domain -1 of row 4 is outside 0 to 1 \(such rows: 2"):
        load_data(path)


def test_fractions_are_no_indices(tmp_path):
    path = saved(tmp_path / "d.npz", X=VALUES, y=LABELS + 0.5, class_names=["cat", "dog", "cow"])
    with pytest.raises(DataError, match="targets are float64; where names are given they must be whole numbers"):
        load_data(path)


def test_fractions_without_names_are_a_quantity(tmp_path):
    data = load_data(saved(tmp_path / "d.npz", X=VALUES, y=LABELS + 0.5))
    assert data.class_names is None
    assert load_data(tmp_path / "d.npz", Reading(task="classification")).num_classes == 3


def test_other_arrays_with_a_value_a_row_are_kept_as_metadata(tmp_path):
    path = saved(tmp_path / "d.npz", X=VALUES, y=LABELS, patient=np.arange(6) // 2, weights=np.ones((6, 2)), note="hi")
    data = load_data(path)
    assert set(data.metadata) == {"patient"}
    assert data.metadata["patient"].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("key", ["X", "images"])
@pytest.mark.parametrize("shape", [(6, 4, 5), (6, 4, 5, 3)], ids=["grey", "RGB"])
def test_bytes_with_three_or_four_axes_are_images(tmp_path, key, shape):
    pixels = PICTURES[..., : shape[-1] if len(shape) == 4 else 1].reshape(shape)
    data = load_data(saved(tmp_path / "d.npz", **{key: pixels, "y": LABELS}))
    assert isinstance(data.inputs, Images)
    assert data.inputs.values.shape == (*shape[:3], 3 if len(shape) == 4 else 1)
    assert data.inputs.describe() == f"images, 5 x 4, {'RGB' if len(shape) == 4 else 'grey'}"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "bool", ">f4", ">i8"])
def test_numbers_of_every_kind_are_features(tmp_path, dtype):
    values = (VALUES * 10).astype(dtype)
    found = load_data(saved(tmp_path / "d.npz", X=values, y=LABELS)).inputs.values
    assert found.dtype in (np.float16, np.float32, np.float64)
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, values.astype(found.dtype))


# -- what is wrong in it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_feature_that_is_not_finite_is_named_by_row_and_column(tmp_path, bad):
    values = VALUES.copy()
    values[4, 2] = bad
    with pytest.raises(DataError, match=rf"d.npz: row 5, column 2 holds {bad}: not a finite number; clean it"):
        load_data(saved(tmp_path / "d.npz", X=values, y=LABELS))


def test_a_feature_too_large_for_float32_is_named(tmp_path):
    values = VALUES.astype(np.float64)
    values[1, 0] = 1e39
    with pytest.raises(DataError, match=r"row 2, column 0 holds 1e\+39: a number that float32 cannot hold"):
        load_data(saved(tmp_path / "d.npz", X=values, y=LABELS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": None}, r"no inputs among y, domain; call them X or features or images"),
        ({"y": None}, r"no labels among X, domain; call them y or labels or targets"),
        ({"y": LABELS[:5]}, r"6 inputs but 5 targets; there must be one for each"),
        ({"domain": SITES[:2]}, r"6 inputs but 2 domains"),
        ({"y": np.zeros(6, int)}, r"every row has the same target, '0'; there is nothing to learn"),
        ({"y": np.array([0, 1, np.nan, 0, 1, 2])}, r"the target of row 3 is nan \(such rows: 1 of 6\)"),
        ({"y": np.ones((6, 2))}, r"target must be one value a row, got shape \(6, 2\)"),
        ({"y": np.array(3)}, r"target must be one value a row, got shape \(\)"),
        ({"y": np.ones(6, complex)}, r"target must be numbers or text, got complex128"),
        ({"domain": np.array(["a", "", "b", "a", "b", "a"])}, r"the domain of row 2 is empty"),
        ({"X": VALUES[:0], "y": LABELS[:0], "domain": SITES[:0]}, r"there are no samples|nothing to learn"),
        ({"X": VALUES[:, :0]}, r"features must have shape \(rows, features\), got \(6, 0\)"),
        ({"X": VALUES[0]}, r"features must have shape \(rows, features\), got \(3,\)"),
        ({"X": VALUES.reshape(6, 3, 1)}, r"an array of float32 with shape \(6, 3, 1\): images must be bytes"),
        ({"X": PICTURES[:, :0]}, r"images must have shape"),
        ({"X": PICTURES[..., None]}, r"images must have shape .* got \(6, 4, 5, 3, 1\)"),
        ({"X": VALUES.astype(complex)}, r"features must be numbers, got complex128"),
        ({"X": VALUES.astype(str)}, r"features must be numbers, got <U32"),
        ({"X": np.zeros(6, [("a", "f4"), ("b", "f4")])}, r"features must have shape"),
        ({"domain_names": ["a", "a"], "domain": LABELS % 2}, r"two domains are called 'a'"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, change, message):
    contents = {"X": VALUES, "y": LABELS, "domain": SITES, **change}
    path = saved(tmp_path / "d.npz", **{name: value for name, value in contents.items() if value is not None})
    with pytest.raises(DataError, match=message) as caught:
        load_data(path)
    assert str(caught.value).count("d.npz") == 1


def test_options_for_tables_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"--target means nothing for an \.npz file; leave it out"):
        load_data(saved(tmp_path / "d.npz", X=VALUES, y=LABELS), Reading(target="y"))


# -- harm ------------------------------------------------------------------------------------------------------------


class Bomb:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def objects(path: Path) -> np.ndarray:
    return np.array([Bomb(path)] * 6, dtype=object)


@pytest.mark.parametrize("key", ["X", "y", "domain", "domain_names"])
def test_objects_are_refused_and_never_unpickled(tmp_path, key):
    made = tmp_path / "made"
    path = saved(tmp_path / "d.npz", **{"X": VALUES, "y": LABELS, key: objects(made)})
    with pytest.raises(DataError, match=f"d.npz: '{key}' holds Python objects, which are never read"):
        load_data(path)
    assert not made.exists()
    with np.load(path, allow_pickle=True) as contents:  # the payload is real
        contents[key]
    assert made.exists()


def test_objects_that_nobody_needs_are_passed_over_and_never_unpickled(tmp_path):
    made = tmp_path / "made"
    data = load_data(saved(tmp_path / "d.npz", X=VALUES, y=LABELS, extra=objects(made)))
    assert list(data.metadata) == []
    assert not made.exists()


def test_a_pickle_under_the_name_of_numbers_is_never_unpickled(tmp_path):
    """The header says float, the content is a pickle."""
    made = tmp_path / "made"
    content = npy(objects(made)).partition(b"\n")[2]
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 3), }"
    path = zip_of(tmp_path / "d.npz", X=raw_npy(header, content), y=npy(LABELS))
    with contextlib.suppress(DataError):  # as numbers, the bytes of a pickle may be anything
        load_data(path)
    assert not made.exists()


def test_a_bare_pickle_under_the_name_of_an_npz_is_refused(tmp_path):
    made = tmp_path / "made"
    (tmp_path / "d.npz").write_bytes(pickle.dumps(Bomb(made)))
    with pytest.raises(DataError, match=r"d.npz: .*damaged, or not what its name says"):
        load_data(tmp_path / "d.npz")
    assert not made.exists()


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (100000, 10), }",
        "{'descr': '|S0', 'fortran_order': False, 'shape': (1000000000000, 1000), }",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (9000000000, 1), }",
        "{'descr': '<U0', 'fortran_order': False, 'shape': (9000000000,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-6, -3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2.5, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 3) * 9, }",
        "{'descr': '<f4', 'fortran_order': 'maybe', 'shape': (6, 3), }",
        "{'descr': 'x99', 'fortran_order': False, 'shape': (6, 3), }",
        "{'descr': [('a', 'O')], 'fortran_order': False, 'shape': (6, 3), }",
        "{'shape': (6, 3), }",
        "__import__('os').getcwd()",
        "{" * 300,
        "",
    ],
)
def test_a_header_that_lies_is_refused_at_once(tmp_path, header):
    path = zip_of(tmp_path / "d.npz", X=raw_npy(header, VALUES.tobytes()), y=npy(LABELS))
    with pytest.raises(DataError, match=r"d\.npz"):
        load_data(path)


@pytest.mark.parametrize("kind", ["|S0", "<U0", "|V0"])
@pytest.mark.parametrize("key", ["X", "y", "domain", "extra"])
def test_any_number_of_values_of_no_bytes_is_refused_at_once(tmp_path, kind, key):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': (1000000000000,), }}"
    members = {"X": npy(VALUES), "y": npy(LABELS), key: raw_npy(header)}
    with pytest.raises(DataError, match=rf"d.npz: '{key}' says it has shape \(1000000000000,\) but holds fewer bytes"):
        load_data(zip_of(tmp_path / "d.npz", **members))


@pytest.mark.parametrize("version", [b"\x00\x00", b"\x02\x00", b"\x09\x01"])
def test_a_header_of_another_version_is_refused(tmp_path, version):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 3), }"
    path = zip_of(tmp_path / "d.npz", X=raw_npy(header, VALUES.tobytes(), version), y=npy(LABELS))
    with pytest.raises(DataError, match=r"d.npz: the header of 'X' makes no sense; the file is damaged"):
        load_data(path)


@pytest.mark.parametrize("key", ["y", "domain", "domain_names", "extra"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_letters_that_unicode_does_not_have_are_refused(tmp_path, key, order):
    """They would end in a fault inside Python."""
    letters = np.array([97, 98, 97, 0x110000, 97, 98], f"{order}u4").view(f"{order}U1")
    contents = {"X": VALUES, "y": LABELS, "domain": LABELS % 2, key: letters}
    with pytest.raises(DataError, match=f"d.npz: '{key}' says it holds text, but not all of it is"):
        load_data(zip_of(tmp_path / "d.npz", **{name: npy(value) for name, value in contents.items()}))


def test_arrays_larger_than_memory_are_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "available_bytes", lambda: 100)
    with pytest.raises(DataError, match=r"d.npz needs .* MiB of memory, more than there is; split it up"):
        load_data(saved(tmp_path / "d.npz", X=VALUES, y=LABELS))


@pytest.mark.parametrize("keep", [0, 10, 100, -1, -30])
def test_a_file_cut_short_is_named(tmp_path, keep):
    path = saved(tmp_path / "d.npz", X=VALUES, y=LABELS)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"d.npz: .*cut short, damaged, or not what its name says"):
        load_data(path)


def test_a_member_whose_bytes_were_changed_is_noticed(tmp_path):
    path = saved(tmp_path / "d.npz", X=VALUES, y=LABELS)
    content = bytearray(path.read_bytes())
    content[content.index(VALUES.tobytes()) + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="Bad CRC"):
        load_data(path)


def test_a_zip_without_arrays_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(DataError, match=r"d.npz holds no arrays; save them with numpy.savez"):
        load_data(tmp_path / "d.npz")


def test_only_the_arrays_wanted_are_read(tmp_path):
    path = saved(tmp_path / "d.npz", X=VALUES, y=LABELS, extra=objects(tmp_path / "made"))
    assert set(read_arrays(path, wanted=["y", "X", "nothing"])) == {"X", "y"}


# -- one file a domain -----------------------------------------------------------------------------------------------


def folder_of(tmp_path: Path, **files: dict[str, object]) -> Path:
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, contents in files.items():
        saved(folder / f"{name}.npz", **contents)
    return folder


def test_a_folder_of_files_has_one_domain_a_file(tmp_path):
    folder = folder_of(
        tmp_path, north={"X": VALUES, "y": LABELS}, east={"features": VALUES[:2] + 9, "labels": LABELS[:2]}
    )
    data = load_data(folder)
    assert data.name == "sites"
    assert data.domain_names == ("east", "north")
    assert data.domains.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(data.inputs.values, np.concatenate([VALUES[:2] + 9, VALUES]))
    assert data.official_test is None


def test_test_parts_are_kept_as_such(tmp_path):
    parts = {"train_images": PICTURES[:4], "train_labels": LABELS[:4], "test_images": PICTURES[4:],
             "test_labels": LABELS[4:]}  # fmt: skip
    data = load_data(folder_of(tmp_path, mnist=parts, svhn=parts))
    assert data.official_test.tolist() == [False] * 4 + [True] * 2 + [False] * 4 + [True] * 2
    assert data.targets.tolist() == [*LABELS, *LABELS]
    np.testing.assert_array_equal(data.inputs.values[:6], PICTURES)


def test_hidden_files_and_other_files_are_no_domains(tmp_path):
    folder = folder_of(tmp_path, a={"X": VALUES, "y": LABELS}, b={"X": VALUES, "y": LABELS})
    (folder / ".a.123-draft.npz").write_bytes(b"half of a file")
    (folder / "readme.txt").write_text("hello")
    assert load_data(folder).domain_names == ("a", "b")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"X": VALUES[:, :2], "y": LABELS}, r"bad.npz: samples of shape \(2,\), but \(3,\) in aaa.npz"),
        ({"X": VALUES, "y": LABELS[:3]}, r"bad.npz: 6 inputs but 3 labels"),
        ({"X": VALUES}, r"bad.npz: no labels among X"),
        ({"train_X": VALUES, "train_y": LABELS}, r"bad.npz: no test inputs among train_X, train_y"),
        ({"X": np.array(1.5), "y": LABELS}, r"bad.npz: features must have shape .* got \(\)"),
        ({"X": VALUES, "y": np.array(1)}, r"bad.npz: .*one value a row, got shape \(\)"),
        ({"X": VALUES, "y": LABELS.astype("datetime64[s]")}, r"bad.npz: .*numbers or text, got datetime64"),
        ({"X": VALUES.astype("datetime64[s]"), "y": LABELS}, r"bad.npz: features must be numbers, got datetime64"),
        ({"X": np.where(VALUES > 1, np.nan, VALUES), "y": LABELS}, r"bad.npz: row \d, column \d holds nan"),
        ({"X": np.zeros((6, 3), [("a", "f4")]), "y": LABELS}, r"bad.npz: features must be numbers"),
    ],
    ids=["width", "length", "labels", "part", "scalar", "scalar label", "dates", "date inputs", "nan", "fields"],
)
def test_a_file_that_does_not_go_with_the_others_is_named(tmp_path, bad, message):
    folder = folder_of(tmp_path, aaa={"X": VALUES, "y": LABELS}, bad=bad)
    with pytest.raises(DataError, match=message):
        load_data(folder)


def test_a_damaged_file_in_the_folder_is_named(tmp_path):
    folder = folder_of(tmp_path, a={"X": VALUES, "y": LABELS})
    (folder / "b.npz").write_bytes(b"no")
    with pytest.raises(DataError, match=r"b.npz: .*damaged"):
        load_data(folder)


def test_text_labels_of_all_files_make_one_list_of_classes(tmp_path):
    folder = folder_of(
        tmp_path,
        a={"X": VALUES[:2], "y": np.array(["dog", "cat"])},
        b={"X": VALUES[2:4], "y": np.array(["elephant", "dog"])},
    )
    data = load_data(folder)
    assert data.class_names == ("cat", "dog", "elephant")
    assert data.targets.tolist() == [1, 0, 2, 1]


# -- real data -------------------------------------------------------------------------------------------------------


@needs_real_data
def test_the_features_of_pacs_are_read_whole():
    data = load_data(REAL / "pacs_efflite0_feats.npz")
    assert data.inputs.values.shape == (9991, 1280)
    assert data.domain_names == ("art_painting", "cartoon", "photo", "sketch")
    assert data.counts().sum(axis=1).tolist() == [2048, 2344, 1670, 3929]
    assert data.num_classes == 7
