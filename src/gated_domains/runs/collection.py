"""What run folders hold, for a page: results first, curves and predictions when asked; broken folders by name."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gated_domains.data.errors import DataError, expanded, explain, first_line
from gated_domains.data.npz import read_arrays
from gated_domains.evaluation.metrics import metric_named
from gated_domains.runs.folder import BROKEN, ENVIRONMENT, METRICS, MODEL_CARD, PREDICTIONS, RUN, RunFolder
from gated_domains.runs.insight import Insight
from gated_domains.runs.result import RESULT_FILE, RunResult, read_result, reading_order

_THREADS = 8  # that wait for the disk
_MOST_EPOCHS = 2**31
# Of the predictions, by array: its kinds and how many axes it has, one entry or line a row.
_PREDICTED = {
    "beta": ("biuf", (2,)),
    "output": ("biuf", (2,)),
    "coverage": ("biuf", (1,)),
    "domains": ("iu", (1,)),
    "targets": ("biuf", (1, 2)),  # several labels a row
    "part": ("biuf", (1,)),
}


@dataclass(frozen=True)
class Broken:
    """A folder that is no whole run, and why."""

    path: Path
    why: str


class RunCollection:
    """The finished runs below some folders, in reading order, and the folders that are none.

    What is damaged beyond a result (curves, predictions) is noted in ``broken`` when it is asked for, and passed over.
    """

    def __init__(self, runs: Iterable[tuple[Path, RunResult]], broken: Iterable[Broken] = ()) -> None:
        runs = list(runs)  # one folder may stand in two rows, under two labels
        self.results: tuple[RunResult, ...] = tuple(result for _, result in runs)
        self._folders = {id(result): (result, path) for path, result in runs}
        self.broken: list[Broken] = list(broken)

    def folder(self, result: RunResult) -> Path:
        """Where a run lies."""
        return self._folders[id(result)][1]

    def knows(self, result: RunResult) -> bool:
        """Whether it is one of these very results."""
        return id(result) in self._folders

    def stands_for(self, renamed: RunResult, result: RunResult) -> None:
        """Know a result by another label as well."""
        self._folders[id(renamed)] = (renamed, self.folder(result))  # kept, or its id would be another's some day

    def curve(self, result: RunResult) -> list[dict[str, Any]]:
        """The records of its epochs, up to the first that is damaged."""
        path, records = self.folder(result) / METRICS, []
        for number, line in enumerate(self._lines(path), 1):
            try:
                record = json.loads(line)
                epoch, train = record["epoch"], record["train"]
                if not isinstance(epoch, int) or not 0 <= epoch < _MOST_EPOCHS or not isinstance(train, dict):
                    raise TypeError("this is no record of an epoch")
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                self.note(path, f"line {number}: {first_line(error)}")
                break
            records.append(record)
        return records

    def predictions(self, result: RunResult, *wanted: str) -> dict[str, NDArray[Any]] | None:
        """The arrays of its predictions (those wanted); None where they are not there, or not what they should be."""
        path = self.folder(result) / PREDICTIONS
        if not path.exists():
            return None
        try:
            found = read_arrays(path, wanted=wanted or None)
            _check_predictions(path, found, result.domain_names)
        except (DataError, OSError) as error:
            self.note(path, explain(error) if isinstance(error, OSError) else str(error))
            return None
        return found

    def insight(self, result: RunResult) -> Insight | None:
        """What its gates show; None where it has none."""
        folder = self.folder(result)
        try:
            return Insight.read(folder)
        except (DataError, OSError) as error:
            self.note(folder, explain(error) if isinstance(error, OSError) else str(error))
            return None

    def class_names(self, result: RunResult) -> tuple[str, ...]:
        """What is predicted, by name; empty where that is no class, or the folder does not tell."""
        model = self._object(self.folder(result) / MODEL_CARD)
        schema, trained_on = model.get("schema"), model.get("trained_on")
        found = schema.get("class_names") if isinstance(schema, dict) else None
        if isinstance(trained_on, dict):  # with classes that held-out rows alone have
            found = trained_on.get("classes", found)
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def about(self, result: RunResult) -> dict[str, Any]:
        """What ``run.json`` says: recipe and data; nothing where it cannot be read."""
        return self._object(self.folder(result) / RUN)

    def environment(self, result: RunResult) -> dict[str, Any]:
        """Where it was made; nothing where the folder does not tell."""
        return self._object(self.folder(result) / ENVIRONMENT)

    def _object(self, path: Path) -> dict[str, Any]:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            self.note(path, first_line(error))
            return {}
        return found if isinstance(found, dict) else {}

    def _lines(self, path: Path) -> list[str]:
        try:
            return path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            self.note(path, first_line(error))
            return []

    def note(self, path: Path, why: str) -> None:
        """Remember what is damaged, once."""
        noted = Broken(path, why)
        if noted not in self.broken:
            self.broken.append(noted)


def gather(folders: Iterable[str | os.PathLike[str]]) -> RunCollection:
    """All runs in these folders and below; a folder that is not there at all is refused."""
    runs: dict[Path, RunResult] = {}
    broken: list[Broken] = []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise DataError(f"{folder}: there is no such folder of runs; check the spelling")
        places = list(_run_folders(folder))
        with ThreadPoolExecutor(_THREADS) as pool:
            found = dict(zip(places, pool.map(_read, places), strict=True))
        whole = {place: result for place, result in found.items() if isinstance(result, RunResult)}
        broken += [result for result in found.values() if isinstance(result, Broken)]
        for place in sorted(whole, key=lambda place: reading_order(whole[place])):
            runs.setdefault(place, whole[place])
    return RunCollection(runs.items(), dict.fromkeys(broken))


@dataclass(frozen=True)
class ListedRun:
    """A run folder in a line.

    ``path`` is relative to the folder that was listed; ``score`` is the mean over held-out domains, else over sources.
    """

    path: Path
    data: str
    method: str
    hold_out: str
    seed: str
    score: str
    state: str


def list_folders(folder: str | os.PathLike[str]) -> list[ListedRun]:
    """What the run folders in a folder and below are, finished or not."""
    root = expanded(folder)
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder of runs; check the spelling, or name one (runs list DIR)")
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda path: _listed(path, path.relative_to(root.resolve())), _run_folders(root)))


def _listed(folder: Path, path: Path) -> ListedRun:
    run = RunFolder(folder)
    try:
        about = run.about()
        recipe, data = about["recipe"], str(about["data"].get("name", ""))
        method, hold_out = str(recipe["method"]["name"]), str(recipe.get("hold_out") or "none")
        seed, score = str(recipe.get("seed", "")), ""
        if run.done:
            result = run.result()
            metric, scores = metric_named(result.metric), result.test or result.validation
            method, hold_out = result.label, result.hold_out if result.held_out else "none"
            score = f"{metric.shown(sum(scores.values()) / len(scores))} {metric.label}" if scores else ""
        epochs = len(run.metrics())
        total = recipe.get("training", {}).get("epochs", "?")
        state = "done" if run.done else "failed" if run.broken else f"epoch {epochs} of {total}"
    except (DataError, OSError, KeyError, TypeError, AttributeError) as error:
        return ListedRun(path, "", "", "", "", "", f"damaged: {first_line(error)}")
    return ListedRun(path, data, method, hold_out, seed, score, state)


def _run_folders(folder: Path) -> Iterator[Path]:
    for place, below, names in os.walk(folder):
        below.sort()
        if RESULT_FILE in names or RUN in names:
            below.clear()  # a run holds no other run
            yield Path(place).resolve()


def _read(place: Path) -> RunResult | Broken:
    if not (place / RESULT_FILE).exists():
        why = "its loss became NaN or infinite" if (place / BROKEN).exists() else "not finished"
        return Broken(place, f"{why}; run the same command again to resume it")
    try:
        result = read_result(place / RESULT_FILE)
        _check_result(result)
    except (DataError, OSError) as error:
        return Broken(place, explain(error) if isinstance(error, OSError) else str(error))
    except (ValueError, OverflowError) as error:  # numbers of thousands of digits, text that cannot be written
        return Broken(place, f"not the result of a run: {first_line(error)}; delete its folder and run it again")
    return result


def _check_result(result: RunResult) -> None:
    """Refuse one that would spoil the comparison of all others."""
    metric_named(result.metric)
    found = {"seconds": result.seconds, "temperature": result.temperature}
    found |= {
        f"{part} {name}": scores.overall
        for part, metrics in result.all_metrics.items()
        for name, scores in metrics.items()
    }
    if result.validation_overall is not None:
        found[f"validation {result.metric}"] = result.validation_overall
    for name, value in found.items():
        if not math.isfinite(value):
            raise ValueError(f"its {name} is {value}")
    reading_order(result)
    json.dumps(result.to_json(), ensure_ascii=False).encode()


def _check_predictions(path: Path, found: dict[str, NDArray[Any]], domain_names: tuple[str, ...]) -> None:
    rows: set[int] = set()
    for name, array in found.items():
        if name.endswith("_names"):
            continue
        kinds, axes = _PREDICTED.get(name, (array.dtype.kind, (array.ndim,)))
        if array.ndim == 0 or array.ndim not in axes or array.dtype.kind not in kinds:
            raise DataError(f"{path}: {name!r} has shape {array.shape} and type {array.dtype}; run it again")
        rows.add(len(array))
    if len(rows) > 1:
        raise DataError(f"{path}: its arrays have {sorted(rows)} rows; run it again")
    domains = found.get("domains")
    if domain_names and domains is not None and domains.size and domains.max() >= len(domain_names):
        raise DataError(f"{path}: there is a row of domain {domains.max()}, and {len(domain_names)} domains")
