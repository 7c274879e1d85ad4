"""Readers of the public originals of Digits-5, and what makes the package's files from them. No pickle is ever read."""

from gated_domains.data.originals.idx import read_idx, read_mnist
from gated_domains.data.originals.matlab import (
    read_digit_five_mnist,
    read_digit_five_mnistm,
    read_digit_five_syn,
    read_digit_five_usps,
    read_svhn,
)
from gated_domains.data.originals.png import read_mnistm_folders, read_mnistm_lists
from gated_domains.data.originals.prepare import Preparation, PreparedDomain, prepare_digits5
from gated_domains.data.originals.usps import read_usps_h5, read_usps_libsvm, read_usps_text

__all__ = [
    "Preparation",
    "PreparedDomain",
    "prepare_digits5",
    "read_digit_five_mnist",
    "read_digit_five_mnistm",
    "read_digit_five_syn",
    "read_digit_five_usps",
    "read_idx",
    "read_mnist",
    "read_mnistm_folders",
    "read_mnistm_lists",
    "read_svhn",
    "read_usps_h5",
    "read_usps_libsvm",
    "read_usps_text",
]
