"""A run on disk: a folder named by the hash of its recipe and data; writing it can be interrupted at any moment."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean, expanded, listing, written_whole
from gated_domains.data.npz import read_arrays
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.result import FORMAT, RunResult
from gated_domains.runs.result import RESULT_FILE as RESULT
from gated_domains.runs.storage import canonical, folder_lock, jsonable, parsed_json, read_json, run_hash, write_json
from gated_domains.settings import to_yaml

RUN, RECIPE, ENVIRONMENT = "run.json", "recipe.yaml", "environment.json"
METRICS, PREDICTIONS, BROKEN, MEMBERS = "metrics.jsonl", "predictions.npz", "broken.json", "members.json"
WEIGHTS, MODEL_CARD = "model.safetensors", "model.json"
TUNING = "tuning.json"
"""Beside the runs of a comparison: the trials of a search."""

_DRAFT = re.compile(r"\..+\.\d+-[0-9a-f]{8}(\.\w+)?")  # what ``written_whole`` leaves behind when it is killed


class RunFolder:
    """What is known of a run: its recipe first, metrics and checkpoints on the way, its result last.

    ``open`` makes or finds the folder of a recipe, ``open_run_folder`` the one that a person names.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, root: str | os.PathLike[str], recipe: Mapping[str, Any], *, data: Mapping[str, Any]) -> RunFolder:
        """The folder of this recipe on these data, made when there is none. ``data`` tells them apart by content."""
        run = cls.find(root, recipe, data=data)
        if run is None:
            run = cls(Path(root) / run_name(recipe, data))
            run._refuse_strangers()
            about = {"format": FORMAT, "run": run.name, "recipe": dict(recipe), "data": dict(data)}
            write_json(run.path / RUN, about)
        elif run.done:
            run._remove_checkpoints()  # it may have been cut off just before
        return run

    @classmethod
    def find(
        cls, root: str | os.PathLike[str], recipe: Mapping[str, Any], *, data: Mapping[str, Any]
    ) -> RunFolder | None:
        """The folder of this recipe on these data where there is one; one that holds something else is refused."""
        run = cls(Path(root) / run_name(recipe, data))
        if not (run.path / RUN).exists():
            return None
        about = run.about()
        if canonical([about["recipe"], about["data"]]) != canonical([dict(recipe), dict(data)]):
            raise DataError(f"{run.path} holds a run of another recipe; {_cure(run.path)}")
        return run

    @property
    def name(self) -> str:
        """The hash that the folder is named by."""
        return self.path.name

    def about(self) -> dict[str, Any]:
        """What ``run.json`` says: format, recipe, data."""
        about = self._read(RUN)
        if not isinstance(about.get("recipe"), dict) or not isinstance(about.get("data"), dict):
            raise DataError(f"{self.path / RUN}: recipe or data are missing; {self._again()}")
        return about

    def recipe(self) -> dict[str, Any]:
        """The recipe of the run, all defaults written out."""
        return self.about()["recipe"]

    # -- on the way ----------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Work in this folder alone: while another process does, it is refused."""
        with folder_lock(self.path):
            for left in self.path.iterdir():  # by a worker that was killed
                if _DRAFT.fullmatch(left.name) and left.is_file():
                    left.unlink()
            yield

    @property
    def checkpoints(self) -> list[Path]:
        """The folders ``checkpoint-*``, by name."""
        return sorted(path for path in self.path.glob("checkpoint-*") if path.is_dir())

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a line to the metrics: all of it, or nothing when that fails."""
        if not isinstance(record.get("step"), int):
            raise ValueError(f"a record needs its step as a whole number, got {record.get('step')!r}")
        line = json.dumps(jsonable(record), allow_nan=False).encode() + b"\n"
        path, whole = self.path / METRICS, len(self._metric_lines())
        with open(path, "ab", buffering=0) as file:
            file.truncate(whole)  # a line cut short by a crash would swallow the next
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(whole)
                raise

    def keep_metrics(self, through_step: int) -> None:
        """Drop the records after a step, when training goes on from there and will make them again."""
        kept = [record for record in self.metrics() if record["step"] <= through_step]
        if not (self.path / METRICS).exists():
            return
        with written_whole(self.path / METRICS) as draft:
            draft.write_text("".join(json.dumps(record) + "\n" for record in kept), "utf-8")

    def metrics(self) -> list[dict[str, Any]]:
        """All records so far, but for a last one cut short."""
        path, records = self.path / METRICS, []
        cure = f"delete the folder {self.path} to run it again"
        for number, line in enumerate(self._metric_lines().splitlines(), 1):
            record = parsed_json(line, where=f"{path}, line {number}", cure=cure)
            if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                raise DataError(f"{path}, line {number}: this is no record of an epoch; {cure}")
            records.append(record)
        return records

    def _metric_lines(self) -> bytes:
        path = self.path / METRICS
        content = path.read_bytes() if path.exists() else b""
        return content[: content.rfind(b"\n") + 1]

    # -- what comes of it ----------------------------------------------------------------------------------------------

    def write_json(self, name: str, obj: Mapping[str, Any]) -> None:
        """Write a JSON file into the folder, whole or not at all."""
        write_json(self.path / name, obj)

    def write_predictions(self, **arrays: NDArray[Any]) -> None:
        """Keep arrays by name, whole or not at all."""
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise TypeError(f"{name} holds Python objects, which are never written; give numbers or text")
        with written_whole(self.path / PREDICTIONS) as draft:
            np.savez(draft, **arrays)  # type: ignore[arg-type]  # numpy's stubs take the names for its own options

    def predictions(self) -> dict[str, NDArray[Any]]:
        """The arrays of ``write_predictions``."""
        path = self.path / PREDICTIONS
        if not path.exists():
            raise DataError(f"{path} is missing; {self._again()}")
        try:
            return read_arrays(path)
        except DataError as error:
            raise DataError(f"{error}; {self._again()}") from error

    def write_about(self, recipe: Recipe, environment: Mapping[str, Any]) -> None:
        """Write what is made here and where, before it is made."""
        self.write_json(ENVIRONMENT, environment)
        with written_whole(self.path / RECIPE) as draft:
            draft.write_text(to_yaml(recipe.plain()), encoding="utf-8")

    def write_failure(self, why: str) -> None:
        """Note why the training broke off."""
        self.write_json(BROKEN, {"why": why})

    def write_members(self, members: Sequence[RunFolder]) -> None:
        """Note the runs that this one combines."""
        self.write_json(MEMBERS, {"members": [run.name for run in members]})

    def finish(self, result: RunResult) -> None:
        """Write the result, which makes the run done, then remove the checkpoints."""
        self.write_json(RESULT, replace(result, run=self.name).to_json())
        self._remove_checkpoints()

    @property
    def done(self) -> bool:
        """Whether the result is there and can be read."""
        try:
            return (self.path / RESULT).exists() and bool(self._read(RESULT))
        except DataError:
            return False

    @property
    def broken(self) -> bool:
        """Whether its loss became NaN or infinite. Running it again most likely fails again."""
        return (self.path / BROKEN).exists() and not self.done

    @property
    def why(self) -> str:
        """Why it broke off; where it did not itself, one that it needs did."""
        noted = (self.path / BROKEN).exists() and read_json(self.path / BROKEN, cure=self._again())
        return str(noted.get("why", "")) if isinstance(noted, dict) else "a prerequisite failed"

    def result(self) -> RunResult:
        """The result of a run that is done."""
        if not (self.path / RESULT).exists():
            raise DataError(f"{self.path} is not finished: {self._progress()}; start the same command to go on")
        return RunResult.from_json(self._read(RESULT), self.path / RESULT)

    def environment(self) -> dict[str, Any] | None:
        """Where it was made; None where the folder does not tell."""
        path = self.path / ENVIRONMENT
        found = read_json(path, cure=self._again()) if path.exists() else None
        return found if isinstance(found, dict) else None

    def _progress(self) -> str:
        records = self.metrics()
        if not records:
            return "no epoch is done"
        epochs = "1 epoch is" if len(records) == 1 else f"{len(records)} epochs are"
        return f"{epochs} done (step {records[-1]['step']})"

    def _read(self, name: str) -> dict[str, Any]:
        found = read_json(self.path / name, cure=self._again())
        if not isinstance(found, dict):
            raise DataError(f"{self.path / name}: this is not what a run writes; {self._again()}")
        if found.get("format") != FORMAT:
            format = found.get("format")
            raise DataError(f"{self.path} has format {format!r}, this version reads {FORMAT}; {_cure(self.path)}")
        return found

    def _again(self) -> str:
        return f"delete the folder {self.path} to run it again"

    def _refuse_strangers(self) -> None:
        """A folder of this name without ``run.json``: one that was cut off at birth, or somebody else's."""
        if self.path.is_dir() and any(not left.name.startswith(".") for left in self.path.iterdir()):
            raise DataError(f"{self.path} is not empty, but there is no {RUN} in it; {_cure(self.path)}")

    def _remove_checkpoints(self) -> None:
        for pattern in ("checkpoint-*", ".checkpoint-*"):
            for path in self.path.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"


def all_runs(root: str | os.PathLike[str]) -> list[RunFolder]:
    """The runs in a folder by name, done or not; a run itself is a list of one."""
    root = expanded(root)
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder; give the one that runs were written to")
    if (root / RUN).is_file():
        return [RunFolder(root)]
    return [RunFolder(path) for path in sorted(root.iterdir()) if (path / RUN).is_file()]


def open_run_folder(path: str | os.PathLike[str], *, finished: bool = True) -> RunFolder:
    """The run that a person names: by its folder, or by the first letters of it."""
    run = RunFolder(_named(expanded(path)))
    run.about()
    if finished:
        run.result()
    return run


def _named(path: Path) -> Path:
    """The run folder at a path; the one that begins so where there is none; else what is wrong with it."""
    if (path / RUN).is_file():
        return path
    if path.is_dir():
        inside = [run.name for run in all_runs(path)]
        if inside:
            raise DataError(f"{path} is no run, but holds some; name one of them: {listing(inside)}")
        raise DataError(f"{path} is no run: there is no {RUN} in it; give a folder that a training has written")
    if path.exists():
        raise DataError(f"{path} is a file; give the folder of a run")
    if not path.parent.is_dir():
        raise DataError(f"{path}: there is no folder {path.parent}; check the spelling")
    names = [run.name for run in all_runs(path.parent) if run.path != path.parent]
    begun = [name for name in names if name.startswith(path.name)]
    if len(begun) > 1:
        raise DataError(f"{path} may be any of {listing(begun)}; give more letters")
    if not begun:
        raise DataError(f"{path}: there is no such run in {path.parent}{did_you_mean(path.name, names)}")
    return path.parent / begun[0]


def run_name(recipe: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The name of a run folder: a hash of the recipe and of what distinguishes the data."""
    return run_hash({"recipe": dict(recipe), "data": dict(data)})


def _cure(path: Path) -> str:
    return f"choose another --out, or delete {path}"


def refuse_file(root: Path) -> None:
    """Refuse a file where a folder is to be made, before anything is computed."""
    existing = next((path for path in (root, *root.parents) if path.exists()), None)
    if existing is not None and not existing.is_dir():
        raise DataError(f"{existing} is a file, and runs go into a folder; choose another --out")
