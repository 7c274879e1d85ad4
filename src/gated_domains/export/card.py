"""The model card: what a file is, what it was trained on, how it did on domains it never saw, and where it ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from gated_domains.evaluation.statistics import Spread
from gated_domains.export.facts import Facts
from gated_domains.export.feeds import Feed
from gated_domains.export.limits import known_limits
from gated_domains.export.parity import Parity
from gated_domains.export.subject import Subject
from gated_domains.reports.renderers import escaped

TITLE = "# Model card: "
_MEANING = {
    "beta": "the weight of each learned basis for the sample",
    "novelty": "the squared distance of phi(x) from sum_j beta_j mu_j: what the bases cannot express of the sample",
    "coverage": "1 for a sample like the training data, 0 for one unlike anything that the bases express",
}


def model_card(
    subject: Subject, *, path: Path, feeds: Sequence[Feed], outputs: Sequence[str], parity: Parity, facts: Facts
) -> str:
    """The whole card, as Markdown."""
    data = str(facts.data.get("name") or subject.trained_on.get("name") or "")
    parts = [
        f"{TITLE}{escaped(subject.name)}{' on ' + escaped(data) if data else ''}",
        _what(subject, path, parity),
        "## Use\n\n" + _use(path, feeds, outputs),
        _table(["input", "type", "shape", "what it holds"], [_input(feed) for feed in feeds]),
        _table(["output", "shape", "what it says"], _outputs(subject, outputs)),
        "## Data\n\n" + _data(subject, facts),
        "## Protocol\n\n" + _protocol(facts),
        "## Scores on domains it never saw\n\n" + _scores(subject, facts),
        "## Settings\n\n" + _table(["setting", "value"], [[name, str(v)] for name, v in subject.settings.items()]),
        "## Known limits\n\n" + _list(known_limits(subject, feeds=feeds, outputs=outputs, facts=facts)),
    ]
    return "\n\n".join(parts) + "\n"


def _what(subject: Subject, path: Path, parity: Parity) -> str:
    from gated_domains import __version__

    weights = sum(parameter.numel() for parameter in subject.network.parameters())
    body = f" Body: {escaped(subject.body)}." if subject.body else ""
    return (
        f"{escaped(subject.name)}: {escaped(subject.what)}.{body} {weights:,} parameters. Written as "
        f"{escaped(path.name)} by gated-domains {__version__}; its outputs differ from those of the trained model by "
        f"at most {parity} (at batches of 1, 7 and 64)."
    )


def _use(path: Path, feeds: Sequence[Feed], outputs: Sequence[str]) -> str:
    names = ", ".join(outputs) + ("," if len(outputs) == 1 else "")
    name = repr(path.name)
    if path.suffix == ".onnx":
        given = ", ".join(f'"{feed.name}": np.zeros({(1, *feed.shape)}, "{feed.dtype}")' for feed in feeds)
        code = (
            "import numpy as np\nimport onnxruntime\n\n"
            f"session = onnxruntime.InferenceSession({name})\n{names} = session.run(None, {{{given}}})"
        )
    else:
        given = ", ".join(f"torch.zeros({(1, *feed.shape)}, dtype=torch.{feed.dtype})" for feed in feeds)
        code = f"import torch\n\nmodel = torch.export.load({name}).module()\n{names} = model({given})"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}python\n{code}\n{fence}"


def _input(feed: Feed) -> list[str]:
    return [feed.name, feed.dtype, _shape(feed.shape), feed.how]


def _shape(sizes: Iterable[object]) -> str:
    return f"(batch, {', '.join(map(str, sizes))})"


def _outputs(subject: Subject, outputs: Sequence[str]) -> list[list[str]]:
    schema, units = subject.schema, subject.units
    if schema.class_names is not None:
        said, width = f"probabilities of the classes {_names(schema.class_names)}", len(schema.class_names)
    elif schema.label_names is not None:
        said, width = f"probabilities of the labels {_names(schema.label_names)}", len(schema.label_names)
    else:
        said, width = "the number" if subject.numbers == 1 else "the numbers", subject.numbers
    shapes = {"prediction": _shape([width]), "beta": _shape([units.max_bases if units else 0])}
    return [[name, shapes.get(name, "(batch)"), said if name == "prediction" else _MEANING[name]] for name in outputs]


def _data(subject: Subject, facts: Facts) -> str:
    if subject.kind == "estimator":
        return _fitted_on(subject)
    result, data = facts.result, {**subject.trained_on, **facts.data}
    lines = [f"data: {data.get('name', 'not known')}", f"fingerprint: {data.get('fingerprint', 'not known')}"]
    if facts.rows is not None:
        lines.append(f"rows that trained or selected it: {facts.rows:,}")
    if result is not None:
        lines.append(f"source domains: {_names(result.sources) or 'none are known'}")
        lines += [f"note: {note}" for note in result.notes]
    return _list(lines)


def _fitted_on(subject: Subject) -> str:
    known = subject.trained_on
    counts = known.get("domain_counts") or []
    lines = [f"rows: {sum(counts):,}"] if counts else []
    if names := known.get("domains"):
        lines.append(
            "domains: " + ", ".join(f"{_name(name)} ({n:,} rows)" for name, n in zip(names, counts, strict=True))
        )
    else:
        lines.append("domains: none were told")
    return _list(lines)


def _protocol(facts: Facts) -> str:
    result = facts.result
    if result is None:
        return "Not known: the model does not come from a run's folder."
    return _list(
        [
            f"held out: {_names(result.held_out) or 'nothing'}",
            result.protocol,
            f"model selection: {result.selection}",
            f"metric: {facts.metric.label if facts.metric else result.metric}",
            f"seed {result.seed}, split seed {facts.recipe.get('split_seed', 'not known')}",
        ]
    )


def _scores(subject: Subject, facts: Facts) -> str:
    if facts.given:
        rows = [[domain, f"{score:.4g}"] for domain, score in facts.given.items()]
        return "As handed in by whoever exported it:\n\n" + _table(["domain", "score"], rows)
    result, metric = facts.result, facts.metric
    if result is None or metric is None:
        return "None are known. Hold a domain out, score it there, and hand the scores in: `scores={domain: score}`."
    better = "higher is better" if metric.higher_is_better else "lower is better"
    parts = []
    if result.test:
        rows = [[domain, metric.shown(score)] for domain, score in result.test.items()]
        parts.append(f"Of this very model ({better}):\n\n" + _table(["held-out domain", metric.label], rows))
    if len(facts.scores) > len(result.test) or any(found.n > 1 for found in facts.scores.values()):
        rows = [[domain, _spread(metric.shown, found)] for domain, found in facts.scores.items()]
        parts.append(
            f"Of models of the same recipe that never saw the domain ({better}); mean ± standard deviation over seeds "
            "(how many):\n\n" + _table(["held-out domain", metric.label], rows)
        )
    if not parts:
        name = str(facts.data.get("name", "DATA"))
        parts.append(
            "None: nothing was held out, so nobody knows how it does on a domain it never saw. Hold each out in turn "
            f"with the same settings: `gated-domains compare {_code(name)} --methods {_code(result.method)}`, into the "
            "same folder, and export again."
        )
    if facts.unreadable:
        parts.append(f"Runs beside this one whose results could not be read: {facts.unreadable}.")
    return "\n\n".join(parts)


def _spread(shown: object, found: Spread) -> str:
    assert callable(shown)
    return f"{shown(found.mean)}{'' if found.std is None else f' ± {shown(found.std)}'} ({found.n})"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_name, names))


def _name(name: str) -> str:
    """A name in a list of names: between quotes where it would read as two."""
    return f'"{name}"' if "," in name else name


def _code(text: str) -> str:
    """Text between backticks, where nothing can be escaped."""
    return re.sub(r"[`|<>]", "", " ".join(text.split()))


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
