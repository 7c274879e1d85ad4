"""One real training step of every full-size body with gated domain units, as the paper's table trains them."""

from __future__ import annotations

import math

import pytest
import torch

from gated_domains.backbones import Body
from gated_domains.backbones.bodies import make_body
from gated_domains.data.batches import DomainBatch
from gated_domains.methods import METHODS, Classes, Problem
from gated_domains.methods.method import total
from made_graphs import in_rows, made_graphs

pytestmark = pytest.mark.extras

ROWS = 8
CASES = {
    "densenet121": ("densenet121", "images", (3, 96, 96), 1024, 6_900_000),
    "resnet50 at 64": ("resnet50", "images", (3, 64, 64), 2048, 23_000_000),
    "resnet50 at 224": ("resnet50", "images", (3, 224, 224), 2048, 23_000_000),
    "resnet18 of 8 bands": ("resnet18", "bands", (8, 224, 224), 512, 11_000_000),
    "efficientnet-lite0": ("efficientnet-lite0", "images", (3, 96, 96), 1280, 3_300_000),
    "distilbert": ("distilbert", "tokens", (32,), 768, 66_000_000),
    "distilbert with its pre-classifier": ("distilbert-classifier", "tokens", (32,), 768, 66_500_000),
    "gin": ("gin", "graphs", (400,), 300, 3_000_000),
}


def made_inputs(kind: str, shape: tuple[int, ...], rows: int) -> torch.Tensor:
    chance = torch.Generator().manual_seed(0)
    if kind == "tokens":
        texts = torch.randint(1, 30522, (rows, *shape), generator=chance)
        texts[0, 20:] = 0
        return texts
    if kind == "graphs":
        return in_rows(made_graphs(rows, smallest=5, largest=20))
    return torch.rand(rows, *shape, generator=chance) * 2 - 1


def problem(name: str, kind: str, shape: tuple[int, ...], made: list[Body]) -> Problem:
    def make() -> Body:
        made.append(make_body(name, shape, pretrained="false"))
        return made[-1]

    return Problem(kind=kind, shape=shape, outputs=3, task=Classes(), make_body=make)


@pytest.mark.parametrize("gating", ["auto", "features"])
@pytest.mark.parametrize("case", CASES)
def test_one_step_of_gated_domain_units_changes_the_body_and_the_units(case, gating):
    name, kind, shape, features, least = CASES[case]
    if gating == "features" and case == "resnet50 at 224":
        pytest.skip("as at 64 pixels")
    rows, made = 4 if shape[-1] == 224 else ROWS, []
    method_type = METHODS["gdu"]
    settings = method_type.settings_type(gating=gating, num_bases=2, basis_size=2)
    method = method_type.build(settings, problem(name, kind, shape, made), mode="end_to_end")
    (body,) = made
    assert body.features == features
    assert sum(parameter.numel() for parameter in body.parameters()) > least
    inputs = made_inputs(kind, shape, rows)
    method.prepare(lambda: [inputs])
    optimizer = torch.optim.SGD(method.parameter_groups(), lr=0.01)
    before = {part: parameter.detach().clone() for part, parameter in method.named_parameters()}
    loss = total(method.train().objective(DomainBatch(inputs, torch.arange(rows) % 3, None)))
    loss.backward()
    optimizer.step()
    assert math.isfinite(float(loss.detach()))
    changed = {part for part, parameter in method.named_parameters() if not torch.equal(parameter, before[part])}
    assert {part for part in changed if part.startswith("units.")}
    first = next(part for part, _ in method.named_parameters() if part.startswith("backbone.body."))
    assert first in changed
    assert all(parameter.isfinite().all() for parameter in method.parameters())


def test_a_full_step_with_checkpointed_activations_is_the_step_without():
    shape, gradients = (3, 96, 96), []
    for on in (False, True):
        torch.manual_seed(0)
        body = make_body("densenet121", shape, pretrained="false")
        body.checkpoint_activations(on)
        body(made_inputs("images", shape, 3)).square().mean().backward()
        gradients.append(body.network.features.conv0.weight.grad)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)
