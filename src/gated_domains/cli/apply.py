"""``gated-domains evaluate`` and ``predict``: a trained model on new data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gated_domains.cli.options import DataDir, What, takes_reading
from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.labels import Reading

if TYPE_CHECKING:
    from gated_domains.applying.predictor import GatesBy

Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="The folder of a run (or the first letters of it) or of a saved estimator, or an .onnx file.",
    ),
]
Files = Annotated[
    list[str], typer.Argument(metavar="FILES...", help="Data like those of training: files, folders, names, cards.")
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


@takes_reading
def evaluate(
    model: Model,
    what: What,
    reading: Reading,
    data_dir: DataDir = None,
    device: Device = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Score a trained model on data with targets: by domain, their mean and the worst."""
    from gated_domains.applying.of_run import RunPredictor
    from gated_domains.applying.opening import open_model
    from gated_domains.applying.scoring import score_new
    from gated_domains.data.like import read_like
    from gated_domains.training.engine import Hardware

    predictor = open_model(model, device=Hardware(device=device).accelerator)
    data = read_like(what, predictor.schema, targets=True, reading=reading, data_dir=data_dir)
    scores = score_new(data, predictor.predict(data))
    seen = predictor.sources if isinstance(predictor, RunPredictor) else []
    if as_json:
        print(json.dumps({**scores.as_json(), "mean": scores.mean, "worst": scores.worst, "rows": len(data)}, indent=1))
        return
    console, metric = Console(), scores.metric
    table = Table("domain", "", box=None, header_style="bold", pad_edge=False)
    table.add_column(metric.label, justify="right")
    for name, value in scores.by_domain.items():
        table.add_row(Text(name), _seen(name, seen) if data.domain_names else "", metric.shown(value))
    console.print(table)
    console.print(
        f"{len(data):,} rows: {metric.shown(scores.overall)} over all, mean of domains {metric.shown(scores.mean)}, "
        f"worst {metric.shown(scores.worst)}",
        highlight=False,
    )
    for note in data.notes:
        console.print(Text(f"note: {note}"))


@takes_reading
def predict(
    model: Model,
    files: Files,
    reading: Reading,
    out: Annotated[Path, typer.Option(help="The table to write (.csv or .parquet).")] = Path("predictions.csv"),
    gates: Annotated[
        str | None,
        typer.Option(
            metavar="sample|batch|stream",
            help="What gates look at: each sample, a batch of one domain of one file, or a stream of rows. "
            "By default as the model was trained to predict.",
        ),
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="Rows that gates of a stream are of; 256 by default.", min=1)
    ] = None,
    half_life: Annotated[
        float | None, typer.Option(help="Rows after which one in a stream weighs half as much; none by default.")
    ] = None,
    alarm: Annotated[
        bool, typer.Option("--alarm", help="Say at which rows of a stream the gates begin to see something else.")
    ] = False,
    alarm_delta: Annotated[
        float | None,
        typer.Option(help="How readily an alarm is raised, between 0 and 1; 0.05 by default.", metavar="DELTA"),
    ] = None,
    data_dir: DataDir = None,
    device: Device = "cpu",
) -> None:
    """Predict on new data of any size; targets are not needed.

    Writes prediction, probabilities, novelty, coverage and gates, a line a row; of several files with the name of each.
    """
    from gated_domains.applying.opening import open_model
    from gated_domains.applying.predicting import check_paths, predict_files
    from gated_domains.training.engine import Hardware

    check_paths(files, out)
    on = Hardware(device=device).accelerator
    predictor = open_model(
        model,
        device=on,
        gates=_gates(gates),
        window=window,
        half_life=half_life,
        alarm=alarm,
        alarm_delta=alarm_delta,
    )
    done = predict_files(predictor, files, out, reading=reading, data_dir=data_dir)
    console = Console()
    if done.with_coverage:
        console.print(
            f"coverage: {done.covered / done.with_coverage:.0%} on average (100%: like the training data); "
            f"{done.unlike / done.with_coverage:.0%} of the rows are unlike anything seen",
            highlight=False,
        )
    for note in done.few_notes():
        console.print(Text(f"note: {note}"))
    if alarm:
        for said in [str(found) for found in done.alarms] or ["no alarm was raised"]:
            console.print(Text(said), soft_wrap=True)
    of_files = f" of {len(files):,} files" if len(files) > 1 else ""
    console.print(Text(f"wrote {out} ({done.rows:,} row{'s' * (done.rows != 1)}{of_files})"), soft_wrap=True)


def _gates(written: str | None) -> GatesBy | None:
    from gated_domains.applying.predictor import GatesBy

    known: tuple[GatesBy, ...] = get_args(GatesBy)
    found = next((gates for gates in known if gates == written), None)
    if written is not None and found is None:
        raise DataError(
            f"gates look at a sample, a batch or a stream, not at {written!r}{did_you_mean(written, known)}"
        )
    return found


def _seen(name: str, sources: list[str]) -> str:
    """Whether a domain was trained on; nobody knows where training data had none."""
    return "" if not sources else "seen in training" if name in sources else "not seen in training"
