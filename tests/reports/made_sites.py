"""A new site's shift made up for tests of what says and draws it."""

from __future__ import annotations

from typing import Any

from gated_domains.runs.site_shift import (
    BasisShare,
    BesideNearest,
    EstimatedAccuracy,
    LeftOutAccuracy,
    NewPart,
    Novelty,
    SiteRank,
    SiteShift,
    SourceBeside,
)


def a_site(**others: Any) -> SiteShift:
    """A site far from three sources, that draws on two bases."""
    sources = tuple(
        SourceBeside(name=name, rows=50, distance=distance, to_others=to_others, mixture=mixture, outside=outside)
        for name, distance, to_others, mixture, outside in (
            ("north", 0.41, 0.12, (1.0, 0.0), 0.02),
            ("south", 0.21, 0.27, (0.0, 1.0), 0.08),
            ("west", 0.38, 0.2, (0.5, 0.5), 0.05),
        )
    )
    novelty = Novelty(
        mean=0.8, of_sources=0.6, auroc=0.71, p_value=0.001, unlike=0.14, unlike_of_sources=0.03, limit=0.9,
        edges=(0.0, 0.5, 1.0), shares=(0.2, 0.8), shares_of_sources=(0.6, 0.4),
    )  # fmt: skip
    fields: dict[str, Any] = {
        "data": "new.csv",
        "model": "runs/abc",
        "label": "GDU",
        "rows": 200,
        "all_rows": 200,
        "compared": "validation rows of its sources",
        "compared_rows": 150,
        "groups": 200,
        "compared_groups": 150,
        "distance": 0.31,
        "rank": SiteRank(rank=1, sites=4, p_value=0.25, squared=0.09, squared_of_sources=(0.01, 0.04, 0.0625), rows=40),
        "kept_together": False,
        "far_columns": (),
        "p_value": 0.001,
        "permutations": 999,
        "sources": sources,
        "between": ((0.0, 0.2, 0.1), (0.2, 0.0, 0.15), (0.1, 0.15, 0.0)),
        "beside_nearest": BesideNearest(upper=0.25, p_value=0.001, p_novelty=0.4),
        "novelty": novelty,
        "outside": 0.2,
        "new_part": NewPart(weight=0.1, low=0.04, high=0.15, is_there=True),
        "mixture": (
            BasisShare(basis=1, share=0.4, low=0.33, high=0.48, of_sources=(0.4, 0.3, 0.3)),
            BasisShare(basis=2, share=0.6, low=0.52, high=0.67, of_sources=(0.1, 0.71, 0.19)),
        ),
        "level": 0.9,
        "accuracy": EstimatedAccuracy(
            value=0.74,
            low=0.61,
            high=0.87,
            error=0.041,
            left_out=tuple(LeftOutAccuracy(name=name, estimated=0.7, true=0.75) for name in ("north", "south", "west")),
        ),
        "no_accuracy": "",
        "accuracy_of_sources": 0.81,
        "true_accuracy": 0.712,
        "notes": ("rows of 2 domains are taken for one site",),
    }
    return SiteShift(**{**fields, **others})
