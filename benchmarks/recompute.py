"""Compare methods again from results that exist: the columns against the baseline, by the current statistics.

    python benchmarks/recompute.py benchmarks/results/pacs_features_2cpu.md
    python benchmarks/recompute.py benchmarks/results/digits5_table_h200.csv --baseline erm_linear --methods linear,gdu

Three kinds of file are read:

* ``.csv``: a run list with the columns row, target, seed, accuracy (a share), or one of ``choose_recipe.py`` (method,
  target, seed, score in percent).
* ``.json``: what ``partial_invariance.py --save`` writes, and ``results/search_*.json``.
* ``.md``: every table with a column ``mean`` and a row for the baseline. The columns before the mean are held-out
  domains, in percent. A difference of two cells is the mean difference on that domain, so the effect on a new domain
  follows from them, up to rounding; the effect on these domains needs single runs and is left out.

Printed as Markdown. The columns are those of ``gated-domains compare``: the difference on a new domain with its 95 %
interval (t-test over the domains' means), p corrected by Holm over the methods of the table, the difference on these
domains (domains fixed, seeds random) with its own p, the verdict (practically equal: the 90 % interval lies within 0.5
points), domains won, tied and lost, and from six domains on the sign-flip test. Only the best mean is bold.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gated_domains.evaluation.metrics import METRICS
from gated_domains.evaluation.statistics import Effect, spread
from gated_domains.reports.published_digits import ROWS
from gated_domains.reports.summary import Against, Key, compare_methods
from gated_domains.reports.terminal_table import ABSENT, p_text

Scores = dict[str, dict[Key, float]]
Row = list[str]

METRIC = METRICS["accuracy"]
AGAINST = {"on a new domain", "on these domains", "p", "p (Holm)", "verdict", "W/T/L", "sign-flip p"}
OLDER = {"to ERM", "Wilcoxon p", "Wilcoxon p (Holm)", "bootstrap"}
SUMMARY = ("mean", "worst", "n")
_METHOD = re.compile(r"[^,\[\]]+(?:\[[^\]]*\])?")  # commas within brackets belong to a name
_RUN_OF_SEARCH = re.compile(r"(?P<domain>\S+) without (?P<held_out>\S+) seed (?P<seed>\d+)")


def against_columns(
    scores: Scores, baseline: str | None, *, decimals: int, both_p: bool = False
) -> tuple[Row, dict[str, Row]]:
    """The headings, and the cells of each method. Scores are shares; ``both_p`` adds p on these domains."""
    found = compare_methods(scores, baseline, metric=METRIC, margin=METRIC.margin())
    runs = any(against.these_domains.error is not None for against in found.values())
    tested = sum(against.holm is not None for against in found.values())
    flipped = any(against.sign_flip is not None for against in found.values())
    headings = ["on a new domain", "p (Holm)" if tested > 1 else "p"]
    headings += ["on these domains", *["p, not corrected"] * both_p] * runs
    headings += ["verdict", "W/T/L", *["sign-flip p"] * flipped]

    def cells(against: Against) -> Row:
        new = against.new_domain
        these, record = against.these_domains, against.record
        return [
            ABSENT if new.error is None else effect_text(new, decimals),
            p_text(against.holm),
            *[effect_text(these, decimals), *[p_text(these.p_value)] * both_p] * runs,
            against.verdict or ABSENT,
            f"{record.wins}/{record.ties}/{record.losses}",
            *[p_text(against.sign_flip)] * flipped,
        ]

    absent = [ABSENT] * len(headings)
    return headings, {name: cells(found[name]) if name in found else absent for name in scores}


def effect_text(effect: Effect, decimals: int) -> str:
    """``+0.59 (-1.01 to +2.19)`` in points."""
    interval = effect.interval()
    ends = f" ({points(interval.low, decimals)} to {points(interval.high, decimals)})" if interval else ""
    return points(effect.difference, decimals) + ends


def points(share: float, decimals: int) -> str:
    """``+0.59``; a rounded zero has no sign."""
    text = f"{100 * share:+.{decimals}f}"
    return text if text.strip("+-0.") else text[1:]


def read_run_list(path: Path) -> Scores:
    """Of each method, the accuracy by (hold-out, domain, seed)."""
    scores: Scores = {}
    with path.open(newline="") as file:
        for run in csv.DictReader(file):
            key = (run["target"], run["target"], int(run["seed"]))
            method = run["method"] if "method" in run else run["row"]
            share = float(run["score"]) / 100 if "score" in run else float(run["accuracy"])
            scores.setdefault(method, {})[key] = share
    return scores


def read_saved(path: Path) -> Scores:
    """The same from the JSON of ``partial_invariance.py`` or of a search for forms of GDU."""
    saved, scores = json.loads(path.read_text()), Scores()
    for method, by_run in saved.get("scores", {}).items():
        for run, score in by_run.items():
            matched = _RUN_OF_SEARCH.fullmatch(run)
            assert matched is not None, run
            scores.setdefault(method, {})[matched["held_out"], matched["domain"], int(matched["seed"])] = score / 100
    if not scores:
        for row in saved["rows"]:
            for method, score in row["accuracy"].items():
                scores.setdefault(method, {})[row["held_out"], row["domain"], row["seed"]] = score
    return scores


def runs_table(scores: Scores, baseline: str, *, labels: Mapping[str, str]) -> list[str]:
    """Mean and standard deviation over seeds by domain, and the columns against the baseline."""
    domains = list(dict.fromkeys(domain for found in scores.values() for _, domain, _ in found))
    headings, cells = against_columns(scores, baseline, decimals=2, both_p=True)
    means = {name: _over_seeds(found, domains) for name, found in scores.items()}
    best = max(means.values(), key=lambda text: float(text.split()[0]) if text != ABSENT else 0.0)
    rows = []
    for name, found in scores.items():
        by_domain = [_over_seeds(found, [domain]) for domain in domains]
        mean = f"**{means[name]}**" if means[name] == best else means[name]
        rows.append([labels.get(name, name), *by_domain, mean, *cells[name]])
    return markdown(["method", *domains, "mean", *headings], rows)


def _over_seeds(found: Mapping[Key, float], domains: Sequence[str]) -> str:
    """``81.36 (0.44)``: for each seed the mean over these domains, then mean and standard deviation over seeds."""
    by_seed: dict[int, dict[str, list[float]]] = {}
    for (_, domain, seed), score in found.items():
        if domain in domains:
            by_seed.setdefault(seed, {}).setdefault(domain, []).append(100 * score)
    whole = [by_domain for by_domain in by_seed.values() if len(by_domain) == len(domains)]
    if not whole:
        return ABSENT
    over = spread(spread(spread(values).mean for values in by_domain.values()).mean for by_domain in whole)
    return f"{over.mean:.2f}" + ("" if over.std is None else f" ({over.std:.2f})")


def page_tables(page: str, baseline: str) -> list[list[str]]:
    """Every table of the page that compares methods with the baseline, with its columns computed again."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
        heads, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines()]
        if "mean" in heads and baseline in {row[0] for row in rows}:
            found.append(_recomputed(heads, rows, baseline))
    return found


def _recomputed(heads: Row, rows: list[Row], baseline: str) -> list[str]:
    domains = heads[1 : heads.index("mean")]
    scores = {
        row[0]: {
            (domain, domain, 0): number(cell) / 100
            for domain, cell in zip(domains, row[1:], strict=False)
            if cell != ABSENT
        }
        for row in rows
    }
    headings, cells = against_columns(scores, baseline, decimals=1)
    kept = [index for index, head in enumerate(heads) if head not in AGAINST | OLDER]
    front = [index for index in kept if index <= len(domains) or heads[index] in SUMMARY]
    back = [index for index in kept if index not in front]
    mean = heads.index("mean")
    best = max(number(row[mean]) for row in rows)
    lines = []
    for row in rows:
        plain = row[mean].strip("*")
        row[mean] = f"**{plain}**" if number(plain) == best else plain
        lines.append([*(row[index] for index in front), *cells[row[0]], *(row[index] for index in back)])
    return markdown([*(heads[index] for index in front), *headings, *(heads[index] for index in back)], lines)


def number(cell: str) -> float:
    """The mean of ``70.6 ± 0.7`` or ``**70.6**``."""
    return float(cell.strip("*").split()[0])


def markdown(heads: Row, rows: Sequence[Row]) -> list[str]:
    """The lines of a table; the first column is words, the others numbers."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in [heads, rule, *rows]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--baseline", default="ERM", help="as the file names it")
    parser.add_argument("--methods", help="of a run list, those to compare with it, with commas; all by default")
    chosen = parser.parse_args()
    for path in chosen.files:
        print(f"\n{path.name}, compared with {chosen.baseline}:")
        if path.suffix == ".md":
            for lines in page_tables(path.read_text(), chosen.baseline):
                print("", *lines, sep="\n")
            continue
        scores = read_run_list(path) if path.suffix == ".csv" else read_saved(path)
        names = [chosen.baseline, *_METHOD.findall(chosen.methods)] if chosen.methods else list(scores)
        missing = [name for name in [chosen.baseline, *names] if name not in scores]
        if missing:
            parser.error(f"{path} has no runs of {', '.join(missing)}; it has {', '.join(scores)}")
        # Names such as `erm` mean another thing in the paper's rows than in the lists of `choose_recipe.py`.
        paper = path.suffix == ".csv" and path.read_text().startswith("row,")
        labels = {name: row.label for name, row in ROWS.items()} if paper else {}
        table = runs_table({name: scores[name] for name in names}, chosen.baseline, labels=labels)
        print("", *table, sep="\n")


if __name__ == "__main__":
    main()
