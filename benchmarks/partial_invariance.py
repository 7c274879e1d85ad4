"""Two domains of digits held out at once: how much of them no basis expresses, and what the fallback is worth there.

    python benchmarks/partial_invariance.py                                              # the embedded digits
    python benchmarks/partial_invariance.py --data DIR --seeds 3 --device cuda --save partial_invariance_h200

DIR holds ``digits5-small``. GDU that applies coverage, GDU as it is by default, ERM and a retrained linear head are
trained on the other three domains. A sample is outside where its coverage is 0; beside their share stands the usual
one, of validation rows of the sources. Inside and outside, the model that applies coverage is scored three times: with
coverage as it is, with no sample falling back to the shared expert (never), and with every sample doing so (always).
"""

from __future__ import annotations

from typing import Any

from held_out_models import Opened, Runs, markdown, mean, options, pairs_of, percent, save
from recompute import METRIC, effect_text

from gated_domains.applying.inside import GatedRun
from gated_domains.insight.shift.fallback import fallback
from gated_domains.insight.shift.novelty import auroc
from gated_domains.insight.shift.outside import outside_span
from gated_domains.reports.summary import Against, compare_methods
from gated_domains.reports.terminal_table import p_text

COVERED = "gdu[coverage=true]"
METHODS = (COVERED, "gdu", "erm", "linear")
HEADS = (
    *("held out", "domain", "GDU with coverage", "GDU", "ERM", "linear", "AUROC", "outside", "usual", "new part"),
    *("inside", "never", "always", "outside", "never", "always"),
)


def measure(opened: Opened, domain: str) -> dict[str, Any]:
    """What one model makes of one domain that it has not seen."""
    model, site = opened.model, opened.domain(domain)
    assert isinstance(model, GatedRun)
    assert site.targets is not None
    seen, familiar = model.look(site), model.look(opened.familiar)
    assert seen.predicted.residual is not None
    assert familiar.predicted.residual is not None
    found = outside_span(model.units, seen.view, familiar.view)
    inside, beyond = fallback(model.units, lambda: model.predictor.predict(site).output, site.targets, found.samples)
    return {
        "auroc": auroc(seen.predicted.residual, familiar.predicted.residual),
        "share": found.share,
        "usual_share": found.usual_share,
        "weight": found.weight,
        "low": found.low,
        "high": found.high,
        "common": found.common,
        "of_mean": found.of_mean,
        "usual_of_mean": found.usual_of_mean,
        "inside": vars(inside),
        "outside": vars(beyond),
    }


def cells(rows: list[dict[str, Any]]) -> list[str]:
    """One line of the table: means over these."""

    def over(*keys: str) -> float:
        found = []
        for row in rows:
            value: Any = row
            for key in keys:
                value = value[key]
            found.append(float(value))
        return mean(found)

    said = [percent(over("accuracy", method)) for method in METHODS]
    said += [f"{over('auroc'):.2f}", percent(over("share")), percent(over("usual_share"))]
    said.append(f"{percent(over('weight'))} ({percent(over('low'))} to {percent(over('high'))})")
    return said + [percent(over(where, way)) for where in ("inside", "outside") for way in ("gated", "never", "always")]


def contrasts(rows: list[dict[str, Any]]) -> dict[str, Against]:
    """Each of the other methods less GDU, by domain: a domain's difference is the mean over the pairs it is part of."""
    scores = {
        method: {(row["held_out"], row["domain"], row["seed"]): row["accuracy"][method] for row in rows}
        for method in METHODS
    }
    return compare_methods(scores, "gdu", metric=METRIC, margin=METRIC.margin())


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--pairs", type=int, help="the first so many pairs alone")
    chosen = parser.parse_args()
    runs = Runs(chosen)
    pairs = pairs_of(runs.dataset, chosen.pairs)
    runs.make(["+".join(pair) for pair in pairs], METHODS, chosen.seeds)
    rows = []
    for pair in pairs:
        held_out = "+".join(pair)
        for seed in range(chosen.seeds):
            opened = runs.opened(held_out, seed, COVERED)
            for domain in pair:
                accuracy = {method: runs.accuracy(held_out, method, seed, domain) for method in METHODS}
                row = {"held_out": held_out, "domain": domain, "seed": seed, "accuracy": accuracy}
                rows.append({**row, **measure(opened, domain)})
    lines = [
        [" + ".join(pair), domain, *cells([row for row in rows if (row["held_out"], row["domain"]) == (held, domain)])]
        for pair in pairs
        for held in ["+".join(pair)]
        for domain in pair
    ]
    print(markdown(HEADS, [*lines, ["**mean**", "", *cells(rows)]]))
    found = contrasts(rows)
    print(f"\n{runs.what}, {chosen.seeds} seed(s), per cent; {runs.machine}.")
    for method, against in found.items():
        new, these = (effect_text(effect, 2) for effect in (against.new_domain, against.these_domains))
        verdict = against.verdict or "too few domains for a verdict"
        print(
            f"- {method} less gdu, in points: on a new domain {new}, p {p_text(against.holm)} (Holm): {verdict}; "
            f"on these {against.new_domain.n} domains {these}"
        )
    if chosen.save:
        kept = {method: against.as_json() for method, against in found.items()}
        save(chosen.save, {"machine": runs.machine, "data": runs.what, "rows": rows, "contrasts": kept})


if __name__ == "__main__":
    main()
