"""Known limits of an exported model: sentences that are true of it, each from a fact."""

from __future__ import annotations

from collections.abc import Sequence

from gated_domains.export.facts import Facts
from gated_domains.export.feeds import Feed
from gated_domains.export.subject import Subject


def known_limits(subject: Subject, *, feeds: Sequence[Feed], outputs: Sequence[str], facts: Facts) -> list[str]:
    """What a person should know before relying on it."""
    return [
        "Scores are of the domains named with them; on any other domain it may do better or worse.",
        *_oracle(facts),
        *_calibration(subject),
        *_gates(subject, outputs),
        *_graph(subject, feeds),
    ]


def _oracle(facts: Facts) -> list[str]:
    if facts.result is None or not facts.result.oracle:
        return []
    return ["It was selected by rows of the held-out domain (oracle): its scores there are more than a user can get."]


def _calibration(subject: Subject) -> list[str]:
    if subject.task == "number":
        return ["It gives a number and no uncertainty of it."]
    if subject.temperature == 1:
        return ["Its probabilities are as trained; they were not calibrated."]
    return [
        f"Its probabilities are at temperature {subject.temperature:.4g}, fitted to validation rows of the source "
        "domains; on a new domain they may be too sure."
    ]


def _gates(subject: Subject, outputs: Sequence[str]) -> list[str]:
    if "beta" not in outputs:
        return ["It has no gates: nothing in its outputs tells how unlike the training data a sample is."]
    found = [
        "Gates are by sample: what it says of a sample hangs on that sample alone."
        if subject.gates == "sample"
        else "Gates are by batch: every call takes its batch to be samples of one domain, and what it says of a sample "
        "hangs on those beside it; never mix domains in a batch."
    ]
    if "coverage" in outputs:
        applied = subject.units is not None and subject.units.applies_coverage
        effect = "Where it is 0, the shared expert alone predicts." if applied else "Predictions do not depend on it."
        found.append(
            "Coverage is how familiar a sample looks to the gates, not how likely the prediction is right: a familiar "
            f"sample may be predicted wrongly. {effect}"
        )
    else:
        found.append("It has no coverage: novelty has no scale of its own, compare it with that of known samples.")
    return found


def _graph(subject: Subject, feeds: Sequence[Feed]) -> list[str]:
    found = []
    kind = subject.schema.encoding.kind
    if kind == "images":
        found.append("It takes images of one size; decoding and resizing files is not in the graph.")
    elif kind in ("bands", "words", "tokens", "bits"):
        found += [f"Of {feed.name}: {feed.how}." for feed in feeds]
    if any(feed.dtype.startswith("float") for feed in feeds) and kind != "table":
        found.append("It does not look at its inputs: a sample with NaN gets NaN.")
    if subject.schema.reading.form == "embeddings":
        found.append("Making embeddings of texts is not in the graph.")
    return found
