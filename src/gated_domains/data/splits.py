"""Hold-outs: the domains a model never sees, and the rows that train it, choose its settings, score it. No leaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, listing, row_name
from gated_domains.data.inputs import Rows, Table, likely_domains
from gated_domains.data.labels import held_out_domains, is_fold
from gated_domains.data.new_data import NewData
from gated_domains.data.published import TEST, TRAIN, VALIDATION
from gated_domains.data.sampling import draw

_Mask = NDArray[np.bool_]
_MOST_DOMAINS = 0.5  # as a share of the rows
OFFICIAL = "official"
"""The hold-out of a data set whose publisher divided it."""
_FEW_ROWS = 5
MOST_APART = 200
"""Held-out domains that are scored one by one; more are scored together, under the name of their fold."""


@dataclass(frozen=True, eq=False, kw_only=True)
class HoldOut:
    """Domains that a model never sees, and the rows to train, validate and score it on, each sorted.

    ``left_out`` counts source rows used nowhere: an identical sample, or one of the same group, is in a held-out domain
    (or, where the publisher set rows aside, among the sources' validation rows). ``unseen_classes`` are scored, but no
    training row has them. ``key`` is how a recipe names it. Where ``pooled``, ``held_out`` is one name for all that is
    held out: the publisher's test rows, or a fold of very many domains. ``also`` are other rows that are scored beside:
    the publisher's in-distribution parts.
    """

    name: str
    held_out: tuple[str, ...]
    sources: tuple[str, ...]
    train: Rows
    validation: Rows
    test: Rows
    left_out: int
    unseen_classes: tuple[str, ...]
    key: str = ""
    pooled: bool = False
    also: Mapping[str, Rows] = field(default_factory=dict)

    @property
    def seen(self) -> Rows:
        """The rows that train or validate."""
        return np.union1d(self.train, self.validation)

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", "+".join(self.held_out))


def hold_outs(
    dataset: DomainDataset,
    which: str | Sequence[str] = "default",
    *,
    validation: float = 0.2,
    seed: int = 0,
    keep_together: str | None = None,
    copies: bool | None = None,
) -> list[HoldOut]:
    """The hold-outs asked for, each with its rows.

    ``which`` is ``each`` (every domain in turn), ``folds:K`` (domains dealt into K folds of about as many rows), names
    separated by commas (in turn) or joined by ``+`` (together), or a sequence of such names. ``default`` is ``each`` up
    to 32 domains and ``folds:5`` above; for data whose publisher divided them it is ``official``, that division.

    Where the publisher set rows aside (``dataset.official_test``), those of the sources validate and those of a
    held-out domain are scored. Elsewhere a held-out domain is scored whole, and the share ``validation`` of the source
    rows is drawn by domain and class; of very many small domains whole ones are drawn. Copies of a sample, and rows
    with the same value in the metadata column ``keep_together`` (a patient; by default the data set's own), are never
    on two sides. ``copies`` says whether equal samples are copies of one thing; by default ``are_copies`` decides.
    """
    _check_settings(validation, seed)
    if which == OFFICIAL or list(which) == [OFFICIAL] or (which == "default" and dataset.published is not None):
        return [official(dataset)]
    _check_domains(dataset)
    rows = np.bincount(_domains(dataset), minlength=len(dataset.domain_names))
    chosen = held_out_domains(which, dataset.domain_names, rows=rows, seed=seed)
    _check_scored(dataset, {name for held_out in chosen.values() for name in held_out})
    ties = _ties(dataset, keep_together or dataset.keep_together, copies)
    count = _count_of(which, dataset, chosen)
    return [
        _hold_out(dataset, name, held_out, ties, validation, seed, key=f"{name} of {count}" if count else name)
        for name, held_out in chosen.items()
    ]


def official(dataset: DomainDataset) -> HoldOut:
    """The publisher's own division: ``train`` trains, ``val`` selects, ``test`` is scored; both out of distribution."""
    published = dataset.published
    if published is None:
        raise DataError(f"{dataset.name} has no published division; hold out a domain by its name, or each of them")
    train, test = published.rows(TRAIN), published.rows(TEST)
    return HoldOut(
        name=OFFICIAL,
        held_out=(TEST,),
        sources=() if dataset.domains is None else _names_among(dataset, train),
        train=train,
        validation=published.rows(VALIDATION),
        test=test,
        left_out=0,
        unseen_classes=_unseen(dataset, train, test),
        key=OFFICIAL,
        pooled=True,
        also=published.others(),
    )


def all_sources(
    dataset: DomainDataset,
    *,
    validation: float = 0.2,
    seed: int = 0,
    keep_together: str | None = None,
    copies: bool | None = None,
) -> HoldOut:
    """Nothing held out: all rows train or validate, for a model that is to be used. Data without domains will do.

    It is called ``none`` and has no test rows. The arguments, and what the publisher set aside, mean what they mean for
    ``hold_outs``.
    """
    _check_settings(validation, seed)
    if dataset.domains is None:
        one = replace(dataset, domains=np.zeros(len(dataset), np.int64), domain_names=("",))
        split = all_sources(one, validation=validation, seed=seed, keep_together=keep_together, copies=copies)
        return replace(split, sources=())
    ties = _ties(dataset, keep_together or dataset.keep_together, copies)
    return _hold_out(dataset, "none", (), ties, validation, seed)


def kept_apart(dataset: DomainDataset, held_out: str | None, apart: str, *, validation: float, seed: int) -> HoldOut:
    """A hold-out whose model is selected on source domains (``apart``; ``a+b`` for two) that do not train.

    All other source rows train. Where the publisher set rows aside, those of the other sources are used nowhere.
    """
    if held_out == OFFICIAL or (held_out is not None and is_fold(held_out, dataset.domain_names)):
        raise DataError(f"{held_out} is selected by its own validation rows; a validation domain cannot be kept apart")
    if apart == OFFICIAL or is_fold(apart, dataset.domain_names):
        raise DataError(f"{apart} is no source domain; name one of them, or several joined by +, to validate on")
    names = () if held_out is None else hold_outs(dataset, [held_out], validation=validation, seed=seed)[0].held_out
    aside = hold_outs(dataset, [apart], validation=validation, seed=seed)[0].held_out
    if both := set(names) & set(aside):
        raise DataError(f"{listing(sorted(both))} cannot be held out and validated on; name another source domain")
    split = hold_outs(dataset, ["+".join([*names, *aside])], validation=validation, seed=seed)[0]
    selects = np.isin(_domains(dataset)[split.test], [dataset.domain_index(name) for name in aside])
    train = split.train if dataset.official_test is not None else np.union1d(split.train, split.validation)
    test = split.test[~selects]
    return replace(
        split,
        name="none" if held_out is None else held_out,
        held_out=names,
        train=train,
        validation=split.test[selects],
        test=test,
        unseen_classes=_unseen(dataset, train, test),
    )


def _check_settings(validation: float, seed: int) -> None:
    if not 0 < validation < 1:
        raise DataError(f"validation must lie between 0 and 1, as a share of the source rows; got {validation}")
    if seed < 0:
        raise DataError(f"seed must be 0 or more, got {seed}")


def _check_domains(dataset: DomainDataset) -> None:
    if dataset.domains is None:
        likely = likely_domains(dataset.inputs.columns) if isinstance(dataset.inputs, Table) else {}
        hint = f"; {listing(map(repr, likely))} may be one" if likely else ""
        raise DataError(
            f"{dataset.name} has no domains to hold out; name the column that holds them (--domain COLUMN){hint}"
        )
    present = [dataset.domain_names[index] for index in np.unique(dataset.domains)]
    if len(present) > max(2, _MOST_DOMAINS * len(dataset)):
        raise DataError(
            f"{dataset.name} has {len(present):,} domains in {len(dataset):,} rows ({listing(present, 3)}): "
            "that is no domain but a number or a name of its own for each row; name another column (--domain COLUMN)"
        )
    if len(present) < 2:
        raise DataError(
            f"{dataset.name} has rows of one domain only, {present[0]!r}: held out, it leaves nothing to train on; "
            "add data of another domain, or name another column (--domain COLUMN)"
        )


def _check_scored(dataset: DomainDataset, names: set[str]) -> None:
    """Refuse a held-out domain that has no row to be scored on."""
    domains = _domains(dataset)
    rows = np.bincount(domains, minlength=len(dataset.domain_names))
    aside = rows if dataset.official_test is None else np.bincount(domains[dataset.official_test], minlength=len(rows))
    for name, count, set_aside in zip(dataset.domain_names, rows, aside, strict=True):
        if name in names and count == 0:
            raise DataError(f"the held-out domain {name!r} has no rows; leave it out of the names of the domains")
        if name in names and name not in dataset.scored_whole and set_aside == 0:
            raise DataError(
                f"the held-out domain {name!r} has {count:,} rows but no test rows among them; "
                "set some aside, or have all its rows scored (scored_whole)"
            )


def are_copies(dataset: DomainDataset, digests: NDArray[np.uint64]) -> bool:
    """Whether equal samples are copies of one thing: images always, rows of a table never, vectors where they are rare.

    Vectors of few different values (answers to a questionnaire, fingerprints) are often equal by chance, inside a
    domain too; where more than 1 % of them repeat another of their own domain, none is taken for a copy.
    """
    if not dataset.inputs.repeats_are_copies or dataset.inputs.kind != "features":
        return dataset.inputs.repeats_are_copies
    domains = np.zeros(len(dataset), np.int64) if dataset.domains is None else dataset.domains
    order = np.lexsort((domains, digests))
    repeats = (np.diff(digests[order]) == 0) & (np.diff(domains[order]) == 0)
    return bool(repeats.sum() <= 0.01 * len(dataset))


def _ties(dataset: DomainDataset, keep_together: str | None, copies: bool | None) -> list[Rows]:
    """What binds rows together, as numbers that bound rows share: being copies, being of one group."""
    ties: list[NDArray[Any]] = []
    if keep_together is not None:
        ties.append(groups_of(dataset, keep_together))
    if copies is not False and (copies or dataset.inputs.repeats_are_copies):
        digests = dataset.inputs.digests()
        if copies or are_copies(dataset, digests):
            ties.append(digests)
    return [by_first_row(tie) for tie in ties]


def by_first_row(values: NDArray[Any]) -> Rows:
    """Numbers that equal values share, in the order of their first rows: a draw must not depend on a hash.

    So the same rows are drawn whether images are in memory or on disk, small or large, or a backbone's features.
    """
    _, first, index = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[index]


def groups_of(dataset: DomainDataset | NewData, column: str) -> NDArray[Any]:
    """The values of a metadata column that rows of one group (a patient) share; refused where one is missing."""
    if column not in dataset.metadata:
        raise DataError(f"{dataset.name} has no metadata column {column!r}{did_you_mean(column, dataset.metadata)}")
    values = dataset.metadata[column]
    missing = [value is None or value != value or value == "" for value in values.tolist()]
    if any(missing):
        raise DataError(
            f"{row_name(missing.index(True))} has no {column} ({sum(missing):,} such rows): it cannot be kept together "
            "with its group; fill it in or drop the row"
        )
    return values.astype(str) if values.dtype == object else values


def _count_of(which: str | Sequence[str], dataset: DomainDataset, chosen: Mapping[str, Any]) -> int | None:
    """How many folds the domains were dealt into; None where they were named."""
    one = which if isinstance(which, str) else which[0] if len(which) == 1 else ""
    if is_fold(one, dataset.domain_names):
        return int(one.rsplit(" ", 1)[-1])
    return len(chosen) if list(chosen) == [f"fold {place}" for place in range(1, len(chosen) + 1)] else None


def _names_among(dataset: DomainDataset, rows: Rows) -> tuple[str, ...]:
    return tuple(dataset.domain_names[index] for index in np.unique(_domains(dataset)[rows]))


def _hold_out(
    dataset: DomainDataset,
    name: str,
    held_out: tuple[str, ...],
    ties: list[Rows],
    share: float,
    seed: int,
    *,
    key: str = "",
) -> HoldOut:
    away = _in_domains(dataset, held_out)
    source = ~away
    usable = source.copy()
    for tie in ties:
        usable &= ~np.isin(tie, tie[away])
    if dataset.official_test is None:
        validation = _drawn(dataset, usable, ties, share, seed)
        train, test = usable & ~validation, away
    else:
        validation = usable & dataset.official_test
        train = usable & ~dataset.official_test
        for tie in ties:
            train &= ~np.isin(tie, tie[validation])
        test = away & (dataset.official_test | _in_domains(dataset, dataset.scored_whole & set(held_out)))
    left_out = int(source.sum() - train.sum() - validation.sum())
    _check_parts(dataset, repr(name) if held_out else "nothing", train, validation, share, left_out)
    pooled = len(held_out) > MOST_APART
    return HoldOut(
        name=name,
        held_out=(name,) if pooled else held_out,
        pooled=pooled,
        key=key if pooled else "",
        sources=_names_among(dataset, np.flatnonzero(train | validation)),
        train=np.flatnonzero(train),
        validation=np.flatnonzero(validation),
        test=np.flatnonzero(test),
        left_out=left_out,
        unseen_classes=_unseen(dataset, train, test),
    )


def draws_whole_domains(dataset: DomainDataset) -> bool:
    """Whether validation is of whole domains: where very many have fewer than five rows on average, as scaffolds do.

    By domain and class, a domain of one row would never validate, and every other validation row would have a
    neighbour of its own domain and class in training: too easy to select by.
    """
    if dataset.domains is None:
        return False
    count = len(np.unique(dataset.domains))
    return count > MOST_APART and len(dataset) < _FEW_ROWS * count


def _drawn(dataset: DomainDataset, usable: _Mask, ties: list[Rows], share: float, seed: int) -> _Mask:
    domains = _domains(dataset)[usable]
    if draws_whole_domains(dataset):
        one, bound = np.zeros_like(domains), [*(tie[usable] for tie in ties), domains]
        drawn = np.zeros(len(dataset), np.bool_)
        drawn[usable] = draw(one, one, ties=bound, names=("",), share=share, seed=seed)
        return drawn
    # A class that held-out rows alone have must not change what is drawn.
    targets = dataset.with_classes_of(np.flatnonzero(usable)).targets[usable]
    labels = np.zeros_like(domains) if dataset.class_names is None else targets.astype(np.int64)
    bound = [tie[usable] for tie in ties]
    drawn = np.zeros(len(dataset), np.bool_)
    drawn[usable] = draw(domains, labels, ties=bound, names=dataset.domain_names, share=share, seed=seed)
    return drawn


def _check_parts(
    dataset: DomainDataset, away: str, train: _Mask, validation: _Mask, share: float, left_out: int
) -> None:
    aside = "set aside for tests" if away == "nothing" else "held out"
    why = f" ({left_out:,} source rows are left out: they are copies, or of a group, of rows {aside})" * (left_out > 0)
    if not (train | validation).any():
        raise DataError(f"with {away} held out there is no row left to train on{why}; hold out fewer domains")
    for part, mask in (("train", train), ("validation", validation)):
        if mask.any():
            continue
        if dataset.official_test is not None:
            raise DataError(f"with {away} held out, no row is left for {part} in the published division{why}")
        raise DataError(
            f"with {away} held out, validation={share} of {int((train | validation).sum()):,} source rows leaves no "
            f"row for {part}{why}; choose another share (rows that are kept together stay on one side)"
        )
    if dataset.class_names is not None and len(found := np.unique(dataset.targets[train])) == 1:
        cure = "add rows of another class" if away == "nothing" else "hold out other domains"
        raise DataError(
            f"with {away} held out, all {int(train.sum()):,} training rows are of one class, "
            f"{dataset.class_names[found[0]]!r}; there is nothing to learn: {cure}"
        )


def _unseen(dataset: DomainDataset, train: _Mask | Rows, test: _Mask | Rows) -> tuple[str, ...]:
    if dataset.class_names is None:
        return ()
    return tuple(dataset.class_names[index] for index in np.setdiff1d(dataset.targets[test], dataset.targets[train]))


def _in_domains(dataset: DomainDataset, names: Iterable[str]) -> _Mask:
    return np.isin(_domains(dataset), [dataset.domain_index(name) for name in names])


def _domains(dataset: DomainDataset) -> Rows:
    assert dataset.domains is not None  # checked first of all
    return dataset.domains
