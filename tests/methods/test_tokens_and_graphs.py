"""Methods on tokens and on graphs: what cannot be done with them is done otherwise, or refused with the cure."""

from __future__ import annotations

import pytest
import torch

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.methods import METHODS, Classes, Method, Problem
from gated_domains.training.training_data import FrozenBody
from made_bodies import Atoms, Words, tokens
from made_graphs import in_rows, made_graphs

ROWS = 24
TRAINED = [name for name in METHODS if name not in ("ensemble", "arm-bn")]


class Plain:
    """The objective as it is, without devices or processes around it."""

    def __init__(self, method: Method) -> None:
        self.method = method

    def __call__(self, batch: DomainBatch) -> dict[str, torch.Tensor]:
        return self.method.objective(batch)

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()


def problem(kind: str, *, frozen: bool = False) -> Problem:
    body = Words if kind == "tokens" else Atoms

    def make():
        return FrozenBody(body((9,))) if frozen else body((9,))

    return Problem(kind=kind, shape=(9,), outputs=2, task=Classes(), make_body=make, domains=(12, 12))


def batch(kind: str) -> DomainBatch:
    inputs = tokens(ROWS) if kind == "tokens" else in_rows(made_graphs(ROWS, smallest=2))
    return DomainBatch(inputs, torch.arange(ROWS) % 2, torch.arange(ROWS) // 12)


def built(name: str, kind: str, mode: str = "end_to_end", **settings: object) -> Method:
    method = METHODS[name]
    return method.build(method.settings_type(**settings), problem(kind, frozen=mode == "fine_tune"), mode=mode)


@pytest.mark.parametrize("mode", ["end_to_end", "fine_tune"])
@pytest.mark.parametrize("kind", ["tokens", "graphs"])
@pytest.mark.parametrize("name", TRAINED)
def test_every_method_takes_a_step_and_predicts(name, kind, mode):
    method, rows = built(name, kind, mode), batch(kind)
    method.prepare(lambda: [rows.inputs])
    before = [parameter.detach().clone() for parameter in method.parameters()]
    optimizer = torch.optim.SGD(method.parameter_groups(), lr=0.1)
    own = rows if method.uses_domains else rows.without_domains()
    terms = method.train().step(Plain(method), own, optimizer)
    assert all(term.isfinite().all() for term in terms.values())
    assert any(not torch.equal(old, new) for old, new in zip(before, method.parameters(), strict=True))
    assert method.eval().predict(rows.inputs).output.shape == (ROWS, 2)


@pytest.mark.parametrize("kind", ["tokens", "graphs"])
@pytest.mark.parametrize("mix", ["inputs", "features"])
def test_lisa_mixes_features_where_inputs_have_no_mean(kind, mix):
    assert built("lisa", kind, mix=mix).settings.mix == "features"
    with pytest.raises(DataError, match="cuts boxes out of images"):
        built("lisa", kind, mix="cutmix")


def test_norms_over_atoms_are_not_gated_and_gating_them_is_refused():
    assert not built("gdu", "graphs").norms
    with pytest.raises(DataError, match=r"gated_norm cannot be switched on: .* over atoms"):
        built("gdu", "graphs", gated_norm=True)


def test_a_body_without_batch_norm_has_none_to_gate_or_to_adapt():
    assert not built("gdu", "tokens").norms
    with pytest.raises(DataError, match="gated_norm cannot be switched on: the body has no batch norm"):
        built("gdu", "tokens", gated_norm=True)
    with pytest.raises(DataError, match=r"ARM-BN adapts by batch norm, and the body Words has none; .*arm-bn out"):
        built("arm-bn", "tokens")


def test_arm_bn_adapts_norms_over_atoms():
    method, rows = built("arm-bn", "graphs"), batch("graphs")
    method.train().step(Plain(method), rows, torch.optim.SGD(method.parameter_groups(), lr=0.1))
    one, other = (method.eval().predict(rows.inputs[part]).output for part in (slice(0, 12), slice(6, 18)))
    assert not torch.allclose(one[6:], other[:6])


@pytest.mark.parametrize(("kind", "width"), [("tokens", 65), ("graphs", 66)])
def test_gates_see_the_raw_input_or_the_features(kind, width):
    assert built("gdu", kind).units.gating_features == width
    assert built("gdu", kind, gating="features").units.gating_features == Words.features
