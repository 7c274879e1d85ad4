"""What holds for every kernel, every gate, every kind of experts and every task, taken alone."""

from __future__ import annotations

import copy

import pytest
import torch

from gated_domains.layer import GatedDomainUnits
from gated_domains.layer.experts import TASKS, Binary, MultiClass, MultiLabel, ProbabilisticRegression
from gated_domains.layer.gates import GATES, SoftmaxGate, inner_products
from gated_domains.layer.kernels import KERNELS, as_kernel

# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "registry"), [("kernel", KERNELS), ("gate", GATES), ("task", TASKS)], ids=["kernel", "gate", "task"]
)
def test_a_part_goes_by_its_name(argument, registry):
    for name, kind in registry.items():
        assert type(getattr(GatedDomainUnits(8, 3, **{argument: name}), argument)) is kind


def test_a_kernel_by_name_has_the_width_of_the_default_one():
    assert GatedDomainUnits(8, 3, kernel="laplacian", gating_features=2).kernel.get_sigma() == 2.0
    assert GatedDomainUnits(8, 3).kernel.get_sigma() == 4.0


# -- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kernel_gives_all_pairs_in_the_dtype_of_its_input(make_kernel, dtype):
    kernel = as_kernel(make_kernel())
    x, z = torch.randn(5, 3, dtype=dtype), torch.randn(4, 3, dtype=dtype)
    assert kernel(x, z).shape == (5, 4)
    assert kernel(x, z).dtype == kernel.diagonal(x).dtype == dtype
    assert kernel.diagonal(x).shape == (5,)
    assert kernel.diagonal(x.expand(2, 3, 5, 3)).shape == (2, 3, 5)


def test_a_kernel_is_symmetric(make_kernel):
    kernel, x, z = make_kernel(), torch.randn(5, 3).double(), torch.randn(4, 3).double()
    torch.testing.assert_close(kernel(x, z), kernel(z, x).mT)


def test_a_kernel_survives_copying(make_kernel):
    kernel, x = as_kernel(make_kernel()), torch.randn(5, 3)
    assert torch.equal(copy.deepcopy(kernel)(x, x), kernel(x, x))


def test_a_kernel_of_ours_holds_for_half_precision_input(make_kernel):
    kernel, x = as_kernel(make_kernel()), torch.randn(5, 3)
    halved = x.bfloat16()
    torch.testing.assert_close(
        kernel(halved, halved).float(), kernel(halved.float(), halved.float()), rtol=0.02, atol=0
    )


def test_setting_sigma_is_widening_the_kernel_or_refused(make_kernel):
    kernel, x = as_kernel(make_kernel()), torch.randn(5, 3).double()
    try:
        kernel.set_sigma(1.0)
    except ValueError as error:
        assert "width" in str(error)  # noqa: PT017
        return
    narrow = kernel(x, x)
    kernel.set_sigma(10.0)
    off_diagonal = ~torch.eye(5, dtype=torch.bool)
    assert (kernel(x, x) > narrow)[off_diagonal].all()


# -- gates -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def products():
    active = torch.tensor([True, False, True, True])
    x, bases = torch.randn(6, 3).double(), torch.randn(4, 2, 3).double()
    return inner_products(lambda a, b: torch.exp(-(a[:, None] - b).square().sum(-1) / 4), x, bases, active=active)


def test_a_gate_gives_inactive_bases_no_weight(make_gate, products):
    beta = make_gate()(products)
    assert beta.shape == (6, 4)
    assert torch.isfinite(beta).all()
    assert (beta[:, 1] == 0).all()
    assert (beta[:, [0, 2, 3]] != 0).all()


def test_a_gate_does_not_see_inactive_bases(make_gate, products):
    kept = [0, 2, 3]
    without = products._replace(cross=products.cross[:, kept], gram=products.gram[kept][:, kept], active=None)
    torch.testing.assert_close(make_gate()(products)[:, kept], make_gate()(without))


def test_a_gate_weighs_bases_alike_in_any_order(make_gate, products):
    order = [3, 2, 0]
    shuffled = products._replace(cross=products.cross[:, order], gram=products.gram[order][:, order], active=None)
    torch.testing.assert_close(make_gate()(shuffled), make_gate()(products)[:, order])


def test_one_basis_alone_gets_all_the_weight_of_a_softmax_gate(make_gate, products):
    gate = make_gate()
    alone = products._replace(cross=products.cross[:, :1], gram=products.gram[:1, :1], active=None)
    if isinstance(gate, SoftmaxGate):
        assert (gate(alone) == 1).all()
    else:
        torch.testing.assert_close(gate(alone), alone.cross / alone.gram, rtol=1e-2, atol=1e-2)


# -- experts ---------------------------------------------------------------------------------------------------------


def test_experts_give_one_output_for_every_basis(make_experts):
    experts = make_experts(3, 4, 2)
    assert experts(torch.randn(5, 4)).shape == (5, 3, 2)
    assert experts(torch.randn(1, 4)).shape == (1, 3, 2)
    assert make_experts(1, 1, 1)(torch.randn(1, 1)).shape == (1, 1, 1)


def test_experts_differ_from_each_other_at_the_start(make_experts):
    outputs = make_experts(3, 4, 2)(torch.randn(5, 4))
    assert not torch.allclose(outputs[:, 0], outputs[:, 1])
    assert not torch.allclose(outputs[:, 1], outputs[:, 2])


def test_each_expert_has_parameters_of_its_own(make_experts):
    experts, x = make_experts(3, 4, 2).double(), torch.randn(5, 4).double()
    before = experts(x)
    with torch.no_grad():
        for parameter in experts.parameters():
            assert len(parameter) == 3
            parameter[1] += 0.5
    after = experts(x)
    torch.testing.assert_close(after[:, [0, 2]], before[:, [0, 2]])
    assert not torch.allclose(after[:, 1], before[:, 1])


def test_experts_can_start_at_zero_and_leave_it(make_experts):
    experts, x = make_experts(3, 4, 2), torch.randn(5, 4)
    experts.start_at_zero()
    assert (experts(x) == 0).all()
    optimizer = torch.optim.SGD(experts.parameters(), lr=0.1)
    (experts(x) - 1).square().sum().backward()
    optimizer.step()
    assert (experts(x) != 0).any(0).all()


def test_experts_start_as_wide_as_a_linear_layer(make_experts):
    outputs = make_experts(50, 400, 20)(torch.randn(30, 400))
    assert 0.05 < outputs.std() < 1


# -- tasks -----------------------------------------------------------------------------------------------------------


def target_of(task, shape):
    if type(task).__name__ == "MultiClass":
        return torch.randint(shape[-1], shape[:-1])
    return torch.randint(2, shape).float()


@pytest.mark.parametrize("lead", [(), (1,), (6,), (2, 3, 4)], ids=str)
def test_a_task_has_a_loss_and_a_reading_for_any_leading_dimensions(make_task, lead):
    task = make_task()
    outputs = 1 if type(task).__name__ == "Binary" else 3
    out = GatedDomainUnits(4, outputs, task=task).evaluate(torch.randn(*lead, 4))
    loss = task.loss(out, target_of(task, (*lead, outputs)))
    assert loss.shape == ()
    assert torch.isfinite(loss)
    assert task.read(out).shape == (*lead, outputs)


def test_a_task_does_not_care_how_a_batch_is_laid_out(make_task):
    task = make_task()
    outputs = 1 if type(task).__name__ == "Binary" else 3
    head, x, target = GatedDomainUnits(4, outputs, task=task), torch.randn(2, 3, 4), target_of(task, (2, 3, outputs))
    nested = task.loss(head.evaluate(x), target)
    flat = task.loss(head.evaluate(x.reshape(6, 4)), target.reshape(6, *target.shape[2:]))
    torch.testing.assert_close(nested, flat)


def test_a_better_prediction_has_a_smaller_loss(make_task):
    task = make_task()
    outputs = 1 if type(task).__name__ == "Binary" else 3
    target = target_of(task, (20, outputs))
    aim = torch.nn.functional.one_hot(target, 3).float() if type(task).__name__ == "MultiClass" else target
    out = GatedDomainUnits(4, outputs, task=task).evaluate(torch.randn(20, 4))
    good, bad = (out._replace(prediction=(2 * aim - 1) * sign) for sign in (1.0, -1.0))
    assert task.loss(good, target) < task.loss(bad, target)


def test_classes_are_read_as_probabilities():
    for task, outputs in ((MultiClass(), 3), (MultiLabel(), 3), (Binary(), 1)):
        read = task.read(GatedDomainUnits(4, outputs, task=task).evaluate(torch.randn(6, 4)))
        assert ((read > 0) & (read < 1)).all()
        if outputs == 3 and isinstance(task, MultiClass):
            torch.testing.assert_close(read.sum(-1), torch.ones(6))


def test_unknown_labels_count_in_neither_loss_nor_gradient():
    head = GatedDomainUnits(4, 3, task=MultiLabel())
    x, target = torch.randn(6, 4), torch.randint(2, (6, 3)).float()
    target[:, 1] = float("nan")
    out = head.evaluate(x)
    kept = head.task.loss(out._replace(prediction=out.prediction[:, [0, 2]]), target[:, [0, 2]])
    loss = head.task.loss(out, target)
    torch.testing.assert_close(loss, kept)
    (gradient,) = torch.autograd.grad(loss, head.shared.weight)
    assert torch.isfinite(gradient).all()
    assert (gradient[0, 1] == 0).all()


def test_a_probabilistic_loss_needs_a_variance():
    out = GatedDomainUnits(4, 3).evaluate(torch.randn(6, 4))
    with pytest.raises(ValueError, match="ProbabilisticRegression"):
        ProbabilisticRegression().loss(out, torch.randn(6, 3))
