"""Samples of different lengths: padded when they are read, and packed graphs among them."""

from __future__ import annotations

import numpy as np
import pytest

from gated_domains.data import encoding_from, fit_encoding
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.molecules.fingerprints import Bits
from gated_domains.data.molecules.graphs import Graphs, packed, unpacked
from gated_domains.data.text.token_rows import TokenRows


def graph(nodes: int, edges: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 5, (nodes, 9)), rng.integers(0, nodes, (2, edges)), rng.integers(0, 5, (edges, 3))


SIZES = [(3, 4), (1, 0), (5, 8)]


def graphs() -> Graphs:
    return Graphs.of(packed(*graph(*size, seed=place)) for place, size in enumerate(SIZES))


def test_graphs_come_back_as_they_were_packed():
    found = graphs()
    assert found.nodes.tolist() == [3, 1, 5]
    assert found.edges.tolist() == [4, 0, 8]
    batch = found.read(np.array([2, 0, 1]))
    assert batch.dtype == np.int16
    assert batch.shape == (3, 2 + 5 * 9 + 8 * 5)
    for row, place in zip(batch, (2, 0, 1), strict=True):
        for part, expected in zip(unpacked(row), graph(*SIZES[place], seed=place), strict=True):
            np.testing.assert_array_equal(part, expected)
    assert (batch[2, 2 + 9 :] == -1).all()


def test_a_batch_is_as_wide_as_its_own_longest_sample():
    assert graphs().read(np.array([1])).shape == (1, 11)
    tokens = TokenRows(np.arange(1, 111, dtype=np.int32), np.array([0, 5, 5, 40, 110]), tokens=70)
    assert tokens.read(np.array([0, 1])).shape == (2, 32)
    assert tokens.read(np.array([0, 2])).shape == (2, 64)
    assert tokens.read(np.array([3])).shape == (1, 70)  # not 96: no text has more than 70
    assert tokens.read(np.array([1])).shape == (1, 32)
    assert tokens.read(np.array([0]))[0].tolist() == [1, 2, 3, 4, 5] + [0] * 27


def test_some_of_the_samples_are_the_same_samples():
    fewer = graphs().take(np.array([2, 2, 0]))
    np.testing.assert_array_equal(fewer.read(np.arange(3)), graphs().read(np.array([2, 2, 0])))
    assert fewer.digests()[0] == fewer.digests()[1] != fewer.digests()[2]


def test_digests_of_what_they_were_made_of_are_kept():
    values, offsets = graphs().values, graphs().offsets
    told = Graphs(values, offsets, digests=np.array([7, 7, 9], np.uint64))
    assert told.digests().tolist() == [7, 7, 9]
    assert told.take(np.array([2, 0])).digests().tolist() == [9, 7]


def test_graphs_are_encoded_as_they_are():
    data = DomainDataset(name="m", inputs=graphs(), targets=np.arange(3.0))
    encoding = fit_encoding(data, np.arange(3))
    assert encoding.kind == "graphs"
    assert encoding.prepare(data.inputs) is data.inputs
    assert encoding_from(encoding.describe()).shape == encoding.shape == (1,)
    assert "1 to 5 atoms" in data.inputs.describe()


@pytest.mark.parametrize(
    ("values", "offsets", "message"),
    [
        ([1, 2], [0, 1], "offsets must go from 0 to 2"),
        ([1, 2], [0, 2, 1, 2], "sample 1 ends before it begins"),
        ([2, 0, *[0] * 9], [0, 11], "graph 0 is packed into 11 numbers"),
        ([0, 0], [0, 2], "graph 0 is packed into 2 numbers"),
        ([1], [0, 1], "graph 0 is packed into 1 numbers"),
    ],
)
def test_what_cannot_be_graphs_is_refused(values, offsets, message):
    with pytest.raises(DataError, match=message):
        Graphs(np.array(values, np.int16), np.array(offsets))


def test_a_graph_of_other_features_is_refused():
    x, index, attr = graph(2, 2)
    with pytest.raises(DataError, match=r"got \(2, 8\)"):
        packed(x[:, :8], index, attr)


def test_other_numbers_than_int16_are_refused(without_shape_checks):
    with pytest.raises(DataError, match="got int64"):
        Graphs(graphs().values.astype(np.int64), graphs().offsets)


# -- bits ------------------------------------------------------------------------------------------------------------


def test_bits_stay_bytes_until_a_model_gets_them():
    import torch

    bits = Bits(np.eye(3, dtype=np.uint8))
    data = DomainDataset(name="m", inputs=bits, targets=np.arange(3.0))
    encoding = fit_encoding(data, np.arange(3))
    assert (encoding.kind, encoding.shape, bits.nbytes) == ("bits", (3,), 9)
    assert encoding.tensor(torch.from_numpy(bits.read(np.arange(3)))).dtype == torch.float32
    assert encoding_from(encoding.describe()).shape == (3,)
    assert bits.take(np.array([2])).values.tolist() == [[0, 0, 1]]
    assert bits.describe() == "fingerprints, 3 bits each"


def test_two_molecules_with_one_fingerprint_are_no_copies():
    same = np.ones((2, 4), np.uint8)
    assert len(set(Bits(same).digests().tolist())) == 1
    told = Bits(same, digests=np.array([1, 2], np.uint64))
    assert told.take(np.array([1, 0])).digests().tolist() == [2, 1]


def test_what_is_no_bit_is_refused():
    with pytest.raises(DataError, match="row 2 holds 3"):
        Bits(np.array([[0, 1], [3, 0]], np.uint8))
    with pytest.raises(DataError, match="got float64"):
        Bits(np.zeros((2, 2)))
