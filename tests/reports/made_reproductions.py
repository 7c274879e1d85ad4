"""Tables made up for tests: results as ``result.json`` has them where the publisher divided the data."""

from __future__ import annotations

from typing import Any

from gated_domains.reports.reproduced import Cell, Column, Reproduction, Row


def result(score: float, *, metric: str = "accuracy", average: float | None = None, **others: Any) -> dict[str, Any]:
    """One run: what counts, the average case; ``inside`` is the same pair in distribution."""
    inside = others.pop("inside", None)
    stored: dict[str, Any] = {
        "metric": metric,
        "test": {"by_domain": {"test": score}, "overall": score if average is None else average},
        "seed": 0,
        "all_metrics": {},
    }
    if inside is not None:
        stored["also"] = {"id_val": {"by_domain": {"id_val": 0.0}, "overall": 0.0}}
        stored["also"]["id_test"] = {"by_domain": {"id_test": inside[0]}, "overall": inside[1]}
    return {**stored, **others}


def cell(*scores: float, asked: int | None = None, why: str = "", **others: Any) -> Cell:
    return Cell(results=tuple(result(score, **others) for score in scores), asked=asked or len(scores) or 1, why=why)


COLUMNS = {
    "camelyon17": Column(dataset="camelyon17", title="Camelyon17", body="DenseNet-121, from scratch"),
    "camelyon17-digits": Column(
        dataset="camelyon17", title="Camelyon17 (digits body)", body="the digits network", published=False
    ),
    "ogb-molpcba": Column(dataset="ogb-molpcba", title="OGB-MolPCBA", body="GIN with virtual node, from scratch"),
    "civilcomments": Column(dataset="civilcomments", title="CivilComments", body="DistilBERT"),
    "iwildcam": Column(dataset="iwildcam", title="iWildCam", body="ResNet-50"),
    "poverty": Column(dataset="poverty", title="PovertyMap", body="ResNet-18 on 8 bands"),
}
ROWS = {
    "erm": Row(label="ERM"),
    "irm": Row(label="IRM", uses_domains=True),
    "arm_bn": Row(label="ARM-BN", uses_domains=True, batchwise=True),
    "ft_cosine": Row(label="GDU FT cosine"),
    "gdu": Row(label="GDU (ours)"),
}


def reproduction(cells: dict[tuple[str, str], Cell], **others: Any) -> Reproduction:
    """A table of these cells, with the rows and columns that they name."""
    rows = {name: row for name, row in ROWS.items() if name in {place[0] for place in cells}}
    columns = {name: column for name, column in COLUMNS.items() if name in {place[1] for place in cells}}
    return Reproduction(rows=rows, columns=columns, cells=cells, machine="2 CPU cores (some CPU)", **others)
