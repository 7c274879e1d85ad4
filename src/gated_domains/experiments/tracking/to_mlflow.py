"""Runs for MLflow: one of its runs a training, in a local store below OUT or wherever $MLFLOW_TRACKING_URI says."""

from __future__ import annotations

import logging
import os
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any, TypeVar

from gated_domains.data.errors import DataError, first_line
from gated_domains.experiments.tracking.about_run import (
    curve_of,
    digest_of,
    files_of,
    finals_of,
    settings_of,
    tags_of,
    title_of,
)
from gated_domains.runs.folder import RunFolder

STORE, ARTIFACTS = "mlflow.db", "mlflow-artifacts"
URI, EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"
RUN_TAG, DIGEST_TAG, FOLDER_TAG = "gated_domains.run", "gated_domains.digest", "gated_domains.folder"
_MOST_METRICS, _MOST_PARAMS = 1000, 100  # that MLflow takes at a time
_LONGEST = 500  # letters of a parameter that every version of MLflow takes
_LAST_OF_AN_EPOCH = "selection"
# A server that is gone must not hold up a training for the quarter of an hour that MLflow would try.
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
_SILENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

_T = TypeVar("_T")


def import_mlflow() -> Any:
    """The package, told before it wakes up to call nobody."""
    os.environ.update(_SILENT)
    for name, value in _IMPATIENT.items():
        os.environ.setdefault(name, value)
    import mlflow

    for chatty in ("mlflow", "alembic"):  # they would announce every table of the store
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return mlflow


class MlflowTracker:
    """Writes curves epoch by epoch, and in the end the scores, tags and small files.

    A run is known by its name and what came of it, so that nothing is entered twice; one that was cut off goes on.
    """

    def __init__(self, root: Path) -> None:
        mlflow = import_mlflow()
        self.entities = mlflow.entities
        self.uri = os.environ.get(URI, "")
        self.artifacts: str | None = None
        if not self.uri:
            root.mkdir(parents=True, exist_ok=True)
            self.uri = f"sqlite:///{root.resolve() / STORE}"
            self.artifacts = (root.resolve() / ARTIFACTS).as_uri()
        try:
            self.client = mlflow.MlflowClient(tracking_uri=self.uri)
            self.client.search_experiments(max_results=1)
        except Exception as error:
            raise DataError(
                f"--track mlflow cannot use the store {self.uri} ({first_line(error)}); "
                f"see that it can be reached, or leave ${URI} unset for one below --out"
            ) from error
        self._experiments: dict[str, str] = {}
        self._complete: dict[str, set[str]] = {}
        self._open: dict[str, tuple[str, int]] = {}

    @property
    def look(self) -> str:
        """The command that shows what was written."""
        return f"mlflow ui --backend-store-uri {shlex.quote(self.uri)}"

    def has(self, run: RunFolder) -> bool:
        """Whether all of this run is there."""
        return digest_of(run) in self._known(self._experiment(run))

    def follow(self, run: RunFolder) -> None:
        """Write the epochs that are not there yet."""
        if run.name not in self._open:
            self._open[run.name] = self._begun(run)
        run_id, last = self._open[run.name]
        for epoch, scalars in curve_of(run, after=last):
            self._log(run_id, scalars, step=epoch)
            last = epoch
        self._open[run.name] = run_id, last

    def finish(self, run: RunFolder) -> None:
        """Write the rest of the curve, the final scores and files; only then is the run known as complete."""
        self.follow(run)
        run_id, last = self._open.pop(run.name)
        self._log(run_id, finals_of(run), step=max(last, 0))
        with tempfile.TemporaryDirectory() as folder:
            for name, path in files_of(run).items():
                self.client.log_artifact(run_id, copyfile(path, Path(folder, name)))
        self.client.update_run(run_id, name=title_of(run))
        self.client.set_tag(run_id, DIGEST_TAG, digest_of(run))
        self.client.set_terminated(run_id)
        self._known(self._experiment(run)).add(digest_of(run))

    def close(self) -> None:
        """There is nothing to let go of; what did not end is shown as running, and goes on with its training."""

    def _experiment(self, run: RunFolder) -> str:
        """The experiment that runs on these data belong to, made where there is none."""
        name = os.environ.get(EXPERIMENT) or tags_of(run)["data"] or "gated-domains"
        if name not in self._experiments:
            found = self.client.get_experiment_by_name(name)
            self._experiments[name] = (
                found.experiment_id
                if found is not None
                else self.client.create_experiment(name, artifact_location=self.artifacts)
            )
        return self._experiments[name]

    def _known(self, experiment: str) -> set[str]:
        """The digests of all complete runs, looked up once."""
        if experiment not in self._complete:
            found = self._search(experiment, "attributes.status = 'FINISHED'")
            self._complete[experiment] = {one.data.tags[DIGEST_TAG] for one in found if DIGEST_TAG in one.data.tags}
        return self._complete[experiment]

    def _search(self, experiment: str, which: str) -> Iterator[Any]:
        token = None
        while True:
            found = self.client.search_runs([experiment], filter_string=which, max_results=1000, page_token=token)
            yield from found
            token = found.token
            if not token:
                return

    def _begun(self, run: RunFolder) -> tuple[str, int]:
        """The run of MLflow for this one and the last epoch that is in it: one that was cut off, else a new one."""
        experiment, folder = self._experiment(run), str(run.path.resolve())
        cut_off = self._search(experiment, f"attributes.status = 'RUNNING' and tags.`{RUN_TAG}` = '{run.name}'")
        for found in cut_off:
            if found.data.tags.get(FOLDER_TAG) == folder:
                history = self.client.get_metric_history(found.info.run_id, _LAST_OF_AN_EPOCH)
                return found.info.run_id, max((point.step for point in history), default=-1)
        tags = {**tags_of(run), RUN_TAG: run.name, FOLDER_TAG: folder}
        run_id = self.client.create_run(experiment, run_name=title_of(run), tags=tags).info.run_id
        params = [self.entities.Param(name, _text(value)) for name, value in settings_of(run).items()]
        for some in _portions(params, _MOST_PARAMS):
            self.client.log_batch(run_id, params=some)
        return run_id, -1

    def _log(self, run_id: str, scalars: dict[str, float], *, step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self.entities.Metric(name, value, now, step) for name, value in scalars.items()]
        for some in _portions(metrics, _MOST_METRICS):
            self.client.log_batch(run_id, metrics=some)


def _portions(things: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    return (things[start : start + most] for start in range(0, len(things), most))


def _text(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
