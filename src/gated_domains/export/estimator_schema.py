"""How data are read for a fitted estimator: columns by the names it was fitted on, or vectors of so many numbers."""

from __future__ import annotations

from typing import Any

from gated_domains.data.dataset import Schema
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.data.labels import plain
from gated_domains.data.other_encodings import ColumnsEncoding


def schema_of_estimator(estimator: Any) -> Schema:
    """The schema of the rows that an estimator was fitted on, and of the classes it tells apart."""
    classes, names = getattr(estimator, "classes_", None), getattr(estimator, "feature_names_in_", None)
    width = int(estimator.n_features_in_)
    return Schema(
        encoding=FeatureEncoding(width) if names is None else ColumnsEncoding([str(name) for name in names]),
        class_names=None if classes is None else tuple(plain(name) for name in classes),
    )
