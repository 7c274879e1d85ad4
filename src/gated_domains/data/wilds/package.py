"""The one door to the ``wilds`` package: its classes, imported late, without a word to the network."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gated_domains.data.errors import DataError, decoding
from gated_domains.data.wilds.sets import WildsSet

_CLASSES = {
    "camelyon17": ("camelyon17_dataset", "Camelyon17Dataset"),
    "fmow": ("fmow_dataset", "FMoWDataset"),
    "amazon": ("amazon_dataset", "AmazonDataset"),
    "iwildcam": ("iwildcam_dataset", "IWildCamDataset"),
    "rxrx1": ("rxrx1_dataset", "RxRx1Dataset"),
    "civilcomments": ("civilcomments_dataset", "CivilCommentsDataset"),
    "poverty": ("poverty_dataset", "PovertyMapDataset"),
}
_CURE = "pip install 'gated-domains[wilds]'"


def open_wilds(chosen: WildsSet, folder: Path, *, fold: str | None = None) -> Any:
    """The data set as the unmodified class of the package has it, from a folder that is there; no image is read."""
    made = wilds_class(chosen.name)
    settings = {} if fold is None else {"fold": fold}
    with decoding(folder), as_pandas_was():
        found = made(root_dir=os.fspath(folder.parent), download=False, **settings)
    if Path(found.data_dir).resolve() != folder.resolve():
        raise DataError(
            f"the wilds package reads {Path(found.data_dir).name} and not {folder.name}; its version is not the one "
            f"that is known here: {_CURE}"
        )
    return found


def wilds_class(name: str) -> Any:
    """A class of the package, by the name of its data set."""
    from gated_domains.torchvision_operators import let_torchvision_import

    module, kind = _CLASSES[name]
    let_torchvision_import()
    try:
        with _left_alone():
            return getattr(importlib.import_module(f"wilds.datasets.{module}"), kind)
    except ImportError as error:
        absent = (error.name or "a part of it").partition(".")[0]
        raise DataError(f"WILDS data are read by the wilds package, and {absent} is not installed; {_CURE}") from error


@contextmanager
def _left_alone() -> Iterator[None]:
    """While the package is imported: it asks nobody for a newer version, and PIL keeps its limit on huge images."""
    from PIL import Image

    absent = object()
    before, limit = sys.modules.get("outdated", absent), Image.MAX_IMAGE_PIXELS
    sys.modules["outdated"] = None  # type: ignore[assignment]  # an import of it then fails, as where it is missing
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit
        if before is absent:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = before  # type: ignore[assignment]


@contextmanager
def as_pandas_was() -> Iterator[None]:
    """While a class of the package is made: pandas 2, as far as that class needs it.

    The package writes numbers over text, and into the values of a column; pandas 3 has text columns that take none, and
    values that are read-only.
    """
    import pandas

    plain = pandas.Series.values

    def writable(column: Any) -> Any:
        values = plain.__get__(column)
        return values if getattr(getattr(values, "flags", None), "writeable", True) else values.copy()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the option goes with pandas 4; that small data have empty groups
        pandas.Series.values = property(writable)
        try:
            with pandas.option_context("future.infer_string", False):
                yield
        finally:
            pandas.Series.values = plain
