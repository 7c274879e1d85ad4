"""New data, read as a model expects them: to predict on, or to score it on where there are targets."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from gated_domains.data.dataset import DomainDataset, Schema, schema_of
from gated_domains.data.encoding import FeatureEncoding, ImageEncoding
from gated_domains.data.errors import DataError, naming
from gated_domains.data.inputs import Inputs, Table, describe_images
from gated_domains.data.labels import Reading
from gated_domains.data.like_column import LikeColumn, read_like_tasks
from gated_domains.data.like_table import LikeNumbers, LikeTable, TableForm, read_in_form
from gated_domains.data.loading import follow_card, is_card, load_data, located, read_table, reader_of
from gated_domains.data.matching import targets_like
from gated_domains.data.named import DATASETS
from gated_domains.data.new_data import NewData
from gated_domains.data.other_encodings import ColumnsEncoding
from gated_domains.data.readers import arrays, folders
from gated_domains.data.text import task_files
from gated_domains.data.text.inputs import Text

__all__ = ["NewData", "Schema", "read_like", "schema_of"]

_KINDS = {
    "table": "a table",
    "images": "images",
    "bands": "images of many bands",
    "features": "vectors of features",
    "columns": "columns of a table",
    "words": "texts",
    "tokens": "texts, as tokens",
    "bits": "molecules",
    "graphs": "molecules, as graphs",
}
_Reader = Callable[[Path, Schema, Reading, bool], NewData]


def read_like(
    what: str | os.PathLike[str],
    schema: Schema,
    *,
    targets: bool,
    reading: Reading | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> NewData:
    """The data of this name, or in this place, as a model expects them.

    With ``targets`` (to score it) every row must have one, of a class that training had; without, targets are neither
    needed nor read, and any folder of images, or one image, will do. Columns and arrays are told by their names and
    have the kinds they had in training; what the model does not know is let be. ``reading`` may name the target, the
    domain and columns to keep (``metadata``) where they differ from training. For the rest see ``load_data``.
    """
    reading = reading or Reading()
    if isinstance(what, str) and what in DATASETS:
        return new_data_of(load_data(what, reading, data_dir=data_dir, seed=seed), schema, targets=targets)
    path = located(what)
    if targets and schema.label_names is not None:
        raise DataError(
            f"{path}: the model answers {len(schema.label_names):,} labels, and a file has one target; "
            "predict on it, or score the model on the data set it was trained on"
        )
    if is_card(path):
        path, reading, notes = follow_card(path, reading)
        data = read_like(path, schema, targets=targets, reading=reading, data_dir=data_dir, seed=seed)
        return replace(data, notes=(*notes, *data.notes))
    return replace(_reader(path)(path, schema, reading, targets), label_names=schema.label_names)


def _reader(path: Path) -> _Reader:
    if path.is_file() and path.suffix.lower() in folders.IMAGE_SUFFIXES:
        return _images
    readers: dict[object, _Reader] = {
        read_table: _table,
        task_files.read_task_files: _tasks,
        folders.read_folder: _images,
        arrays.read_npz: _arrays,
        arrays.read_npz_folder: _arrays,
    }
    return readers[reader_of(path)]


def new_data_of(dataset: DomainDataset, schema: Schema, *, targets: bool) -> NewData:
    """All rows of a data set, as new data are read; refused where a model of this schema cannot take them."""
    check_inputs(dataset.name, dataset.inputs, schema)
    answers = None
    if dataset.label_names != schema.label_names and targets:
        raise DataError(f"{dataset.name} has other labels than the model was trained on; give it data like those")
    if targets and dataset.label_names is not None:
        answers = dataset.targets
    elif targets:
        names = dataset.class_names
        values = dataset.targets if names is None else np.array(names)[dataset.targets]
        with naming(dataset.name):
            answers = targets_like(values, schema.class_names, joined=schema.joined)
    return NewData(
        name=dataset.name,
        inputs=dataset.inputs,
        class_names=schema.class_names,
        label_names=schema.label_names,
        targets=answers,
        domains=dataset.domains,
        domain_names=dataset.domain_names,
        notes=dataset.notes,
    )


def _tasks(path: Path, schema: Schema, said: Reading, targets: bool) -> NewData:
    if not schema.of_texts:
        check_kind(path, "words", schema)
    return read_like_tasks(path, schema, said, targets=targets)


def _table(path: Path, schema: Schema, said: Reading, targets: bool) -> NewData:
    return read_in_form(path, table_form(path, schema, said, targets=targets))


def table_form(path: Path, schema: Schema, said: Reading, *, targets: bool) -> TableForm:
    """How a table is read for this model; refused where it takes none."""
    if schema.of_texts or schema.of_molecules:
        return LikeColumn.of(schema, said, targets=targets)
    if isinstance(schema.encoding, FeatureEncoding):
        return LikeNumbers.of(schema, said, targets=targets)
    if not isinstance(schema.encoding, ColumnsEncoding):
        check_kind(path, "table", schema)
    return LikeTable.of(schema, said, targets=targets)


def check_arrays_said(schema: Schema, said: Reading) -> None:
    """Refuse what means nothing for arrays, or was otherwise in training."""
    said.refuse_all_but("positive", "task", "keep_together", what="an .npz file")
    schema.settle(said)


def _arrays(path: Path, schema: Schema, said: Reading, targets: bool) -> NewData:
    check_arrays_said(schema, said)
    read = arrays.npz_folder_arrays if path.is_dir() else arrays.npz_arrays
    found = read(path, labelled=targets)
    check_inputs(path, found.inputs, schema)
    with naming(path):
        if said.keep_together is not None and said.keep_together not in found.metadata:
            raise DataError(f"there is no column {said.keep_together!r} (--keep-together)")
        return NewData(
            name=path.name,
            inputs=found.inputs,
            class_names=schema.class_names,
            targets=targets_like(found.spelled_out(), schema.class_names, joined=schema.joined) if targets else None,
            domains=found.domains,
            domain_names=found.domain_names,
            metadata=found.metadata,
        )


def _images(path: Path, schema: Schema, said: Reading, targets: bool) -> NewData:
    encoding = files_encoding(path, schema, said)
    return (_labelled_images if targets else _loose_images)(path, schema, encoding)


def files_encoding(path: Path, schema: Schema, said: Reading) -> ImageEncoding:
    """The encoding of a model that can see image files; refused where it cannot."""
    said.refuse_all_but("image_size", "positive", what="an image folder")
    schema.settle(said)
    check_kind(path, "images", schema)
    encoding = schema.encoding
    assert isinstance(encoding, ImageEncoding)
    if encoding.channels != 3:
        trained = describe_images(encoding.height, encoding.width, encoding.channels)
        raise DataError(f"{path}: files are read in colour, but the model was trained on {trained}; give an .npz")
    return encoding


def _labelled_images(path: Path, schema: Schema, encoding: ImageEncoding) -> NewData:
    if path.is_file():
        raise DataError(f"{path}: nothing says of which class one image is; give the folder with domain/class/*.png")
    folder = folders.scan(path)
    files = folders.relative(path, folder.files)
    with naming(path):
        answers = targets_like(
            folder.labels(), schema.class_names, joined=schema.joined, what="class", places=files.tolist()
        )
    return NewData(
        name=path.resolve().name,
        inputs=folders.ImageFiles(folder.files, height=encoding.height, width=encoding.width).at_hand(),
        class_names=schema.class_names,
        targets=answers,
        domains=folder.domains,
        domain_names=folder.domain_names,
        metadata={"file": files},
        notes=tuple(folders.doubts(folder)),
    )


def _loose_images(path: Path, schema: Schema, encoding: ImageEncoding) -> NewData:
    files, others = ([str(path)], ()) if path.is_file() else folders.scan_loose(path)
    return NewData(
        name=path.resolve().name,
        inputs=folders.ImageFiles(files, height=encoding.height, width=encoding.width).at_hand(),
        class_names=schema.class_names,
        metadata={"file": folders.relative(path.parent if path.is_file() else path, files)},
        notes=tuple(folders.passed_over(others)),
    )


def check_kind(where: object, kind: str, schema: Schema) -> None:
    """Refuse samples of another kind than those of training."""
    if kind != schema.encoding.kind:
        raise DataError(
            f"{where} holds {_KINDS[kind]}, but the model was trained on {_KINDS[schema.encoding.kind]}; "
            "give it data like those it was trained on"
        )


def check_inputs(where: object, inputs: Inputs, schema: Schema) -> None:
    """Refuse samples of another kind or shape than those of training."""
    if isinstance(schema.encoding, ColumnsEncoding) and isinstance(inputs, Table):
        return  # those that are missing are named when they are taken
    check_kind(where, inputs.kind, schema)
    encoding = schema.encoding
    if isinstance(inputs, Text) or inputs.ragged:
        return  # of any length
    if isinstance(encoding, ImageEncoding):
        trained = describe_images(encoding.height, encoding.width, encoding.channels)
        cure = "bring them to that size, or give a folder of image files, which are fitted to it"
    else:
        trained = f"features, {encoding.shape[0]:,} numbers each"
        cure = "they must come from the same embedding, with the same columns in the same order"
    if inputs.describe() != trained:
        raise DataError(f"{where}: {inputs.describe()}, but the model was trained on {trained}; {cure}")
