"""Checkpoints: the state of a training on disk, when it is written, and how a training continues from it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of_bytes
from safetensors.torch import save as bytes_of_tensors
from torch import Tensor

from gated_domains.data.errors import DataError, first_line
from gated_domains.training.callbacks.base import Callback

if TYPE_CHECKING:
    from gated_domains.training.trainer import Trainer

FORMAT = 2
TENSORS = "tensors.safetensors"
STATE = "state.json"

_NAME = re.compile(r"checkpoint-(\d{9,})(\.replaced)?")
_DRAFT = ".checkpoint-"
# What every safetensors writes and reads back. Other types, complex numbers among them, are kept as their bytes.
_PLAIN = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
_CLOCK_STEPS = 100  # with several processes, steps between two looks at the clock, which all must wait for


def save_checkpoint(folder: str | os.PathLike[str], step: int, state: Mapping[str, Any]) -> Path:
    """Write ``folder/checkpoint-<step>`` whole, then remove the older ones. One process writes to a folder at a time.

    Whenever it is cut off, the checkpoint before it or the new one can be loaded.
    """
    folder = Path(folder)
    path = folder / f"checkpoint-{step:09d}"
    tensors, skeleton = pack(dict(state))
    content = bytes_of_tensors(tensors)
    about = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    body = {"format": FORMAT, "step": step, "tensors": about, "state": skeleton}
    with _draft_of(path) as draft:
        _write(draft / TENSORS, content)
        _write(draft / STATE, json.dumps({**body, "sha256": _digest(body)}, allow_nan=False, indent=1).encode())
        _names_to_disk(draft)
        if path.exists():  # no file system swaps two full folders, so the old one steps aside under a name that is read
            os.replace(path, _aside(path))
        os.replace(draft, path)
    _names_to_disk(folder)  # before anything older goes
    for other in folder.iterdir():
        if other.name.startswith(_DRAFT) or (_is_checkpoint(other) and _order(other) < _order(path)):
            shutil.rmtree(other, ignore_errors=True)
    return path


def newest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The checkpoint of the latest step, where there is one."""
    folder = Path(folder)
    if not folder.is_dir():
        return None
    return max((path for path in folder.iterdir() if _is_checkpoint(path)), key=_order, default=None)


def load_checkpoint(path: str | os.PathLike[str], *, device: str | torch.device = "cpu") -> dict[str, Any]:
    """The state as it was saved. What lay on the CPU comes back there, everything else to ``device``.

    An optimiser's step counts and the states of generators belong on the CPU even where the model is on a GPU.
    """
    path = Path(path)
    body = _read_state(path)
    content = _content(path, TENSORS)
    if len(content) != body["tensors"]["bytes"]:
        raise _damaged(path, TENSORS, f"holds {len(content):,} bytes of {body['tensors']['bytes']:,}")
    if hashlib.sha256(content).hexdigest() != body["tensors"]["sha256"]:
        raise _damaged(path, TENSORS, "has changed since it was written (its SHA-256 differs)")
    try:
        tensors = tensors_of_bytes(content)
    except SafetensorError as error:
        raise _damaged(path, TENSORS, f"cannot be read ({first_line(error)})") from error
    return unpack(tensors, body["state"], device=device)


def pack(state: Any) -> tuple[dict[str, Tensor], Any]:
    """Copies of all tensors in a nested state by name, and the rest of it as JSON.

    Takes dicts (with strings or integers as keys), lists, tuples, tensors, numbers, strings and None. A shared tensor
    is written as often as it appears.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _packed(state, "state", tensors)


def unpack(tensors: Mapping[str, Tensor], skeleton: Any, *, device: str | torch.device = "cpu") -> Any:
    """What ``pack`` was given."""
    if isinstance(skeleton, list):
        return [unpack(tensors, item, device=device) for item in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    if "tensor" in skeleton:
        tensor = tensors[skeleton["tensor"]]
        if "bytes_of" in skeleton:
            tensor = tensor.view(getattr(torch, skeleton["bytes_of"])).reshape(skeleton["shape"])
        return tensor.to(device) if skeleton.get("away") else tensor
    if "dict" in skeleton:
        return {key: unpack(tensors, item, device=device) for key, item in skeleton["dict"]}
    if "tuple" in skeleton:
        return tuple(unpack(tensors, item, device=device) for item in skeleton["tuple"])
    return float(skeleton["float"])


def rng_state(device: str | torch.device) -> dict[str, Tensor]:
    """Where torch's random numbers stand: on the CPU and, for a GPU, there."""
    state = {"cpu": torch.get_rng_state()}
    if torch.device(device).type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(state: Mapping[str, Tensor], device: str | torch.device) -> None:
    """Go on with the random numbers of ``rng_state``; a GPU that it knows nothing of is left as it is."""
    torch.set_rng_state(state["cpu"].cpu())
    if torch.device(device).type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)


def _packed(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return _packed_tensor(value, name, tensors)
    if isinstance(value, Mapping):
        for key in value:
            if type(key) not in (str, int):
                raise TypeError(f"a checkpoint keeps dicts with str or int keys, got {key!r} in {name}")
        return {"dict": [[key, _packed(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if type(value) is list:
        return [_packed(item, f"{name}/{index}", tensors) for index, item in enumerate(value)]
    if type(value) in (tuple, torch.Size):
        return {"tuple": [_packed(item, f"{name}/{index}", tensors) for index, item in enumerate(value)]}
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):  # numpy's float64 is one
        # JSON knows neither infinity nor NaN; of the others Python writes enough digits to read the same number back.
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    raise TypeError(f"a checkpoint keeps tensors, numbers, strings, lists, tuples and dicts, got {value!r} in {name}")


def _packed_tensor(tensor: Tensor, name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        raise TypeError(
            f"a checkpoint keeps dense tensors with values, got {tensor.layout} on {tensor.device} in {name}"
        )
    entry: dict[str, Any] = {} if tensor.device.type == "cpu" else {"away": True}
    # Always a copy, since safetensors refuses shared memory.
    copy = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    if copy.dtype not in _PLAIN:
        entry |= {"bytes_of": str(copy.dtype).removeprefix("torch."), "shape": list(copy.shape)}
        copy = copy.reshape(-1).view(torch.uint8)
    name = _unused(name.encode("utf-8", "backslashreplace").decode(), tensors)
    tensors[name] = copy
    return {"tensor": name, **entry}


def _unused(name: str, taken: Mapping[str, Tensor]) -> str:
    """The name, or one with a number: {"a/b": x} and {"a": {"b": y}} would have the same."""
    number, unused = 1, name
    while unused in taken:
        number, unused = number + 1, f"{name}#{number + 1}"
    return unused


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """A new folder beside ``path`` to write to, gone at the end unless it was moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{_DRAFT}{os.getpid()}-{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        yield draft
    except OSError as error:
        error.filename = str(path)  # what people know it by
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.replaced")
    if aside.exists():
        shutil.rmtree(aside)
    return aside


def _is_checkpoint(path: Path) -> bool:
    return _NAME.fullmatch(path.name) is not None and path.is_dir()


def _order(path: Path) -> tuple[int, bool]:
    """Later steps last, and of two of one step the one that took the other's place."""
    match = _NAME.fullmatch(path.name)
    return (int(match[1]), match[2] is None) if match else (-1, False)


def _read_state(path: Path) -> dict[str, Any]:
    """What ``state.json`` says, when it is whole and ours."""
    content = _content(path, STATE)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, STATE, f"is not JSON ({first_line(error)})") from error
    if not isinstance(body, dict) or "format" not in body:
        raise _damaged(path, STATE, "is not the state of a training")
    if body["format"] != FORMAT:
        raise _damaged(path, STATE, f"has format {body['format']!r}, this version reads {FORMAT}")
    if body.pop("sha256", None) != _digest(body):
        raise _damaged(path, STATE, "has changed since it was written (its SHA-256 differs)")
    return body


def _content(path: Path, name: str) -> bytes:
    try:
        return (path / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise _damaged(path, name, "is missing") from error


def _damaged(path: Path, name: str, what: str) -> DataError:
    return DataError(
        f"{path / name}: {what}; delete the folder {path} to start this training again, nothing else is lost"
    )


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _names_to_disk(folder: Path) -> None:
    """Wait until what the folder holds is known to the disk."""
    if os.name == "nt":
        return  # Windows has no such thing
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Checkpoint(Callback):
    """Writes the state of a training to a folder now and then, and resumes from the newest state that lies there.

    A resumed training ends as if it had never been interrupted, to the bit. Only the newest checkpoint is kept.

    Parameters
    ----------
    folder
        Where checkpoints are written, each as a folder ``checkpoint-<step>``.
    seconds
        The shortest time between two checkpoints; 0 writes one after every step (of one process).
    """

    def __init__(self, folder: str | os.PathLike[str], *, seconds: float = 20.0) -> None:
        self.folder, self.seconds = Path(folder), seconds
        self._saved = time.monotonic()

    def resume(self, trainer: Trainer) -> bool:
        """Restore the newest checkpoint, if there is one; the time until the next one counts from here."""
        self._saved = time.monotonic()
        # Of the first process: a shared disk may not show the same to all processes at once.
        path = trainer.fabric.broadcast(newest_checkpoint(self.folder))
        if path is None:
            return False
        state = load_checkpoint(path, device=trainer.device)
        here = trainer.fabric.world_size
        if state["world"] != here:
            raise DataError(
                f"{path} was made by {state['world']} processes, and here are {here}: go on with as many, "
                "or delete it to start this training again"
            )
        try:
            trainer.load_state_dict(state)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            message = first_line(RuntimeError(" ".join(str(error).split())))
            raise DataError(
                f"{path} is of another model ({message}); delete it to start this training again"
            ) from error
        return True

    def on_step_end(self, trainer: Trainer) -> None:
        """Write a checkpoint if it is time; after the last step of an epoch, `on_epoch_end` does."""
        alone = trainer.fabric.world_size == 1
        if trainer.batch < len(trainer.sampler) and (alone or trainer.batch % _CLOCK_STEPS == 0):
            self._save_if_due(trainer)

    def on_epoch_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Write a checkpoint if it is time."""
        self._save_if_due(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint now. With several processes, all of them must call it."""
        trainer.notify("on_checkpoint_start")
        state = trainer.state_dict()
        if trainer.fabric.is_global_zero:
            save_checkpoint(self.folder, trainer.step, state)
        self._saved = time.monotonic()

    def _save_if_due(self, trainer: Trainer) -> None:
        # By the clock of the first process, or some would save and others not.
        if trainer.fabric.broadcast(time.monotonic() - self._saved >= self.seconds):
            self.save(trainer)
