"""Styles mixed in training: MixStyle, Fourier mixing, and consistency between the views that it gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

import torch
from jaxtyping import Float, Int64
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from gated_domains.backbones.backbone import Backbone, unmoved_buffers
from gated_domains.backbones.mixstyle import StyleMixer, mix_styles, mixes_by_domain
from gated_domains.data.batches import DomainBatch
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Rows
from gated_domains.data.labels import CLASS, Groups, groups_among
from gated_domains.data.sampling import InOrder
from gated_domains.layer.kernels import at_least_float32, autocast_off
from gated_domains.methods.method import Method, Objective, Terms
from gated_domains.training.callbacks.ema import EMA
from gated_domains.training.engine import as_computed
from gated_domains.training.training_data import TrainingData

TEACHER_DECAY = 0.995
"""The decay of the teacher's average, where the training averages no weights itself."""
_AT_ONCE = 512
_RAMP = 0.3  # of all steps, over which the weight of consistency rises from 0
_ROUNDING = 0.7  # of the largest amplitude times the machine's precision: smaller ones are rounding errors


class Mixing:
    """Steps of a method with styles mixed. The mixer learns the domains of a batch, whatever the method may know.

    ``styles`` says of each of a batch's groups which style its rows have; None where that is not asked for.
    """

    def __init__(self, mixer: StyleMixer, styles: Tensor | None) -> None:
        self.mixer, self.styles = mixer, styles

    def step(self, method: Method, objective: Objective, batch: DomainBatch, optimizer: torch.optim.Optimizer) -> Terms:
        """One step of the method."""
        with self.mixer.told(self._styles(batch)):
            own = batch if method.uses_domains else batch.without_domains()
            return method.step(_Telling(self, objective), own, optimizer)

    def told(self, batch: DomainBatch) -> AbstractContextManager[None]:
        """Inside, the body is called with these rows; where their domains are not known, with those told before."""
        return nullcontext() if batch.domains is None else self.mixer.told(self._styles(batch))

    def notes(self, world: int) -> tuple[str, ...]:
        """What differs from one process with the same batch."""
        if world == 1 or self.mixer.needs_domains:
            return ()
        return (f"with {world} processes, styles are mixed within each process's share of a batch",)

    def _styles(self, batch: DomainBatch) -> Tensor | None:
        if batch.domains is None or self.styles is None:
            return None
        return self.styles.index_select(0, batch.domains)


class _Telling:
    """An objective that a step may call with parts of its batch: the mixer is told whose rows those are."""

    def __init__(self, mixing: Mixing, objective: Objective) -> None:
        self.mixing, self.objective = mixing, objective

    def __call__(self, batch: DomainBatch) -> Terms:
        with self.mixing.told(batch):
            return self.objective(batch)

    def backward(self, loss: Tensor) -> None:
        self.objective.backward(loss)


def styles_among(dataset: DomainDataset, train: Rows, group_by: tuple[str, ...]) -> Groups | None:
    """What stands for the domains whose styles are mixed: the groups of the training, but for the class."""
    by = tuple(column for column in group_by if column != CLASS)
    if group_by and not by:
        raise DataError(
            "mixstyle mixes vectors between domains, and groups by class say nothing of those; group by both"
        )
    return groups_among(dataset, train, by)


def start_mixing(
    method: Method, probability: float, *, data: TrainingData, group_by: tuple[str, ...], fabric: Fabric
) -> Mixing:
    """Put a mixer on the method's backbone, where it stays until it is removed.

    Rows are grouped as the training groups them, but for the class: styles of two classes are not to be mixed.
    """
    backbone = method.backbone
    if not isinstance(backbone, Backbone):
        raise DataError(
            f"mixstyle stands on the body of a backbone, and that of {method.label} is a {type(backbone).__name__}; "
            "leave mixstyle out"
        )
    if not mixes_by_domain(backbone):
        return Mixing(mix_styles(backbone, probability), None)
    groups, styles = groups_among(data.dataset, data.train, group_by), styles_among(data.dataset, data.train, group_by)
    if groups is None or styles is None:
        return Mixing(mix_styles(backbone, probability), None)
    style_of_group = torch.zeros(len(groups), dtype=torch.int64)
    style_of_group[torch.from_numpy(groups.index[data.train])] = torch.from_numpy(styles.index[data.train])
    index = torch.from_numpy(styles.index).to(data.samples.device)

    def rows() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in data.samples.batches(InOrder(data.train, _AT_ONCE), groups=index):
            assert batch.domains is not None
            yield as_computed(batch.inputs, fabric), batch.domains

    mixer = mix_styles(backbone, probability, domains=len(styles), training_rows=rows)
    return Mixing(mixer, style_of_group.to(data.samples.device))


def mix_amplitudes(
    images: Float[Tensor, "batch channels height width"],
    partners: Int64[Tensor, " batch"],
    shares: Float[Tensor, " batch"],
    *,
    black: float | None = None,
) -> Float[Tensor, "batch channels height width"]:
    """``A' = (1 - l) |F(x_i)| + l |F(x_k)|`` with the phase of ``F(x_i)``, per channel over the image.

    Amplitudes carry style (colours, contrast, texture), phases carry shapes. Mixing amplitudes gives styles between
    those of the sources, which no source shows. It is done at the input, so gates see the mixed style too.

    Parameters
    ----------
    images
        Of any size and number of channels.
    partners
        Index k of the image whose amplitudes are mixed into each image i.
    shares
        l, between 0 and 1; an image with l = 0 is returned unchanged.
    black
        The value of a black pixel, None: the minimum of each channel over the batch. Spectra are those of
        ``images - black``: where pixels can be negative, the phase of the mean is a sign, and mixing could flip it.

    Notes
    -----
    A coefficient that is 0 up to rounding error has no phase and becomes 0. The mean of an image is mixed by itself, as
    beside it smaller coefficients would be lost in rounding. Spectra are computed in float32 at least. The result is
    not clamped.

    References
    ----------
    Q. Xu, R. Zhang, Y. Zhang, Y. Wang and Q. Tian (2021), "A Fourier-based framework for domain generalization" (FACT).
    """
    with autocast_off(images):
        values = at_least_float32(images)
        floor = values.amin((0, 2, 3), keepdim=True) if black is None else black
        share = shares.to(values.dtype).reshape(-1, 1, 1, 1)
        means = (values - floor).mean((2, 3), keepdim=True)
        mixed_means = torch.lerp(means.abs(), means.abs().index_select(0, partners), share) * means.sgn()
        spectra = torch.fft.rfft2(values - floor - means)
        amplitudes = spectra.abs()
        rounding = _ROUNDING * torch.finfo(values.dtype).eps * amplitudes.amax((2, 3), keepdim=True)
        phases = torch.sgn(spectra) * (amplitudes > rounding)
        mixed_spectra = torch.lerp(amplitudes, amplitudes.index_select(0, partners), share) * phases
        mixed = torch.fft.irfft2(mixed_spectra, s=values.shape[-2:]) + mixed_means + floor
        return torch.where(share > 0, mixed, values).to(images.dtype)


class FourierMix:
    """Mixes each image of a batch, with a probability, with a random image of it; shares are uniform on [0, 1].

    Random numbers come from torch's generator of the images' device and nothing waits for that device, so that a
    recorded step draws new ones at each replay.
    """

    def __init__(self, probability: float, *, black: float | None = None) -> None:
        if not 0 <= probability <= 1:
            raise DataError(f"fourier_mix is the probability that an image is mixed, 0 to 1, got {probability}")
        self.probability, self.black = probability, black

    def __call__(self, batch: DomainBatch) -> DomainBatch:
        """The same samples, some of them in mixed styles; targets and domains are theirs."""
        return replace(batch, inputs=self.mix(batch.inputs))

    def notes(self, world: int) -> tuple[str, ...]:
        """What differs from one process with the same batch."""
        return (
            (f"with {world} processes, images are mixed within each process's share of a batch",) if world > 1 else ()
        )

    def mix(
        self, images: Float[Tensor, "batch channels height width"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "batch channels height width"]:
        """The images, some of them in mixed styles."""
        draws, shares, order = torch.rand(3, len(images), device=images.device, generator=generator)
        partners = order.argsort()  # not randperm, which makes the host wait for a GPU
        return mix_amplitudes(images, partners, shares * (draws < self.probability), black=self.black)


class Consistency:
    """Puts both views into a batch, with the teacher's predictions as soft targets.

    The teacher is the moving average of the weights; the views are an image as it is and in a mixed style, and the
    prediction for one is the target for the other.

    Parameters
    ----------
    method
        What is trained.
    teacher
        The average of its weights.
    weight
        The weight of the loss once the ramp is over.
    fabric
        What runs the training.

    References
    ----------
    Q. Xu et al. (2021), "A Fourier-based framework for domain generalization" (FACT); A. Tarvainen and H. Valpola
    (2017), "Mean teachers are better role models".
    """

    def __init__(self, method: Method, teacher: EMA, *, weight: float, fabric: Fabric) -> None:
        self.method, self.teacher, self.weight, self.fabric = method, teacher, weight, fabric
        # On the device and changed in place, because a captured CUDA graph reads it there.
        self._current = torch.zeros((), device=fabric.device)

    def begin_step(self, step: int, steps: int) -> None:
        """Set the weight for a step: it rises linearly over the first 30 % of all steps."""
        self._current.fill_(self.weight * min(1.0, step / max(1.0, _RAMP * steps)))

    def both_views(self, plain: DomainBatch, mixed: DomainBatch) -> DomainBatch:
        """Each sample twice in a row, as it is and mixed; so blocks of one domain stay blocks."""
        rows = torch.arange(2 * len(plain), device=plain.inputs.device) // 2
        inputs = torch.stack([plain.inputs, mixed.inputs], 1).flatten(0, 1)
        twice = replace(plain.select(rows), inputs=inputs)
        as_teacher = self.teacher.swapped(self.method), unmoved_buffers(self.method), without_dropout(self.method)
        with ExitStack() as stack:
            for context in (torch.no_grad(), self.fabric.autocast(), *as_teacher):
                stack.enter_context(context)
            output = self.method.teach(replace(twice, inputs=as_computed(twice.inputs, self.fabric)))
        of_other_view = output.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
        return replace(twice, soft_targets=of_other_view, soft_weight=self._current)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """No dropout inside; all other modules in the mode they are in."""
    dropouts = [module for module in model.modules() if isinstance(module, _DropoutNd) and module.training]
    try:
        for module in dropouts:
            module.training = False
        yield
    finally:
        for module in dropouts:
            module.training = True
