"""``gated-domains evaluate`` and ``predict``: a trained model on new data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gated_domains.cli.options import DataDir, What, takes_reading
from gated_domains.data.errors import DataError
from gated_domains.data.readers.reading import Reading

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or the first letters of it.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


@takes_reading
def evaluate(
    run: Run,
    what: What,
    reading: Reading,
    data_dir: DataDir = None,
    device: Device = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Score a trained model on data with targets: by domain, their mean and the worst."""
    from gated_domains.data.like import read_like
    from gated_domains.experiments.applying import predict_new, score_new
    from gated_domains.experiments.model import Model
    from gated_domains.experiments.run_folder import open_run
    from gated_domains.training.engine import Hardware

    folder = open_run(run)
    model = Model.load(folder.path)
    data = read_like(what, model.schema, targets=True, reading=reading, data_dir=data_dir)
    predicted = predict_new(model, data, device=Hardware(device=device).accelerator)
    scores = score_new(data, predicted)
    seen = folder.result()["sources"]
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
    run: Run,
    what: What,
    reading: Reading,
    out: Annotated[Path, typer.Option(help="The table to write (.csv or .parquet).")] = Path("predictions.csv"),
    data_dir: DataDir = None,
    device: Device = "cpu",
) -> None:
    """Predict on new data; targets are not needed. Writes prediction, probabilities, novelty, coverage and gates."""
    from gated_domains.data.like import read_like
    from gated_domains.experiments.applying import predict_new, prediction_table, predictions_path, write_table
    from gated_domains.experiments.model import Model
    from gated_domains.experiments.run_folder import open_run
    from gated_domains.training.engine import Hardware

    predictions_path(out)
    if out.exists() and Path(what).exists() and out.samefile(what):
        raise DataError(f"{out} holds the data themselves; write the predictions elsewhere (--out)")
    model = Model.load(open_run(run).path)
    data = read_like(what, model.schema, targets=False, reading=reading, data_dir=data_dir)
    predicted = predict_new(model, data, device=Hardware(device=device).accelerator)
    write_table(prediction_table(data, predicted), out)
    console = Console()
    if predicted.coverage is not None:
        console.print(
            f"coverage: {predicted.coverage.mean():.0%} on average (100%: like the training data); "
            f"{(predicted.coverage == 0).mean():.0%} of the rows are unlike anything seen",
            highlight=False,
        )
    for note in data.notes:
        console.print(Text(f"note: {note}"))
    console.print(Text(f"wrote {out} ({len(data):,} rows)"), soft_wrap=True)


def _seen(name: str, sources: list[str]) -> str:
    """Whether a domain was trained on; nobody knows where training data had none."""
    return "" if not sources else "seen in training" if name in sources else "not seen in training"
