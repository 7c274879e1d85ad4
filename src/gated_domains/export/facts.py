"""Facts for a model card: where a model was scored on domains it never saw, by its own run and by those beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gated_domains.data.errors import DataError
from gated_domains.evaluation.metrics import METRICS, Metric
from gated_domains.evaluation.statistics import Spread, spread
from gated_domains.runs.folder import RunFolder, all_runs
from gated_domains.runs.provenance import SEEN, Provenance
from gated_domains.runs.result import RESULT_FILE, RunResult, read_result
from gated_domains.runs.storage import canonical

_TURNED = ("hold_out", "seed")  # what may differ between runs that are one recipe turned over domains and seeds


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a model besides itself; without a run, no more than the scores that were handed in."""

    result: RunResult | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    """That trained or selected the model."""
    scores: Mapping[str, Spread] = field(default_factory=dict)
    """Of the same recipe on domains that were held out, over seeds; by domain."""
    given: Mapping[str, float] = field(default_factory=dict)
    unreadable: int = 0
    """Runs beside this one whose results could not be read."""

    @property
    def metric(self) -> Metric | None:
        """What scores are of."""
        return None if self.result is None else METRICS.get(self.result.metric)


def facts_of(folder: Path | None, *, scores: Mapping[str, float] | None = None) -> Facts:
    """What the folder of a run tells, and the runs beside it that differ in what is held out and the seed alone."""
    given = dict(scores or {})
    if folder is None:
        return Facts(given=given)
    run = RunFolder(folder)
    about, result = run.about(), read_result(folder / RESULT_FILE)
    tested: dict[str, list[float]] = {}
    unreadable = 0
    for other in all_runs(folder.resolve().parent):
        try:
            found = _like(other, about, result)
        except DataError:
            unreadable += 1
            continue
        for domain, score in (found.test if found else {}).items():
            tested.setdefault(domain, []).append(score)
    return Facts(
        result=result,
        recipe=about["recipe"],
        data=about["data"],
        rows=_rows_seen(folder, about["data"]),
        scores={domain: spread(values) for domain, values in tested.items()},
        given=given,
        unreadable=unreadable,
    )


def _like(other: RunFolder, about: Mapping[str, Any], result: RunResult) -> RunResult | None:
    """The result of a run of the same recipe on the same data, whatever it held out; None for any other."""
    theirs = other.about()
    if not (other.path / RESULT_FILE).exists() or _unturned(theirs) != _unturned(about):
        return None
    found = read_result(other.path / RESULT_FILE)
    return found if found.metric == result.metric else None


def _unturned(about: Mapping[str, Any]) -> str:
    recipe = {name: value for name, value in about["recipe"].items() if name not in _TURNED}
    return canonical([recipe, about["data"]])


def _rows_seen(folder: Path, data: Mapping[str, Any]) -> int | None:
    if not (folder / SEEN).is_file():
        return None
    rows = Provenance.read(folder).rows.get(str(data.get("fingerprint")))
    return None if rows is None else len(rows)
