"""Inputs -> numbers for a model, with all that is learned from data learned from the training rows alone."""

from gated_domains.data.encoding.base import Encoding, FeatureEncoding, ImageEncoding
from gated_domains.data.encoding.columns import ColumnsEncoding
from gated_domains.data.encoding.fitting import encoding_from, fit_encoding
from gated_domains.data.encoding.table import TableEncoding

__all__ = [
    "ColumnsEncoding",
    "Encoding",
    "FeatureEncoding",
    "ImageEncoding",
    "TableEncoding",
    "encoding_from",
    "fit_encoding",
]
