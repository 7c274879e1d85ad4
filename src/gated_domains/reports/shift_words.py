"""A new site in sentences: its place among the sources first, the accuracy to expect last."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gated_domains.runs.site_shift import (
    FEW_OUTSIDE,
    FEWEST_ROWS,
    BasisShare,
    EstimatedAccuracy,
    SiteRank,
    SiteShift,
)

_NAMED = 3  # bases that are spoken of; the table has all
_LITTLE = 0.05  # of a site: a basis below is not spoken of
_MOST = 0.5  # share from which on one source is what a basis mostly stands for
_MORE_OFTEN = 1.5  # times the share that each would have, from which on a source stands out
_NEARLY_ALL = 0.9  # of a site outside of what the bases express
_ALIKE = "all alike"


def sentences(shift: SiteShift) -> list[str]:
    """The answer first."""
    found = [
        headline(shift),
        _distance(shift),
        _detectable(shift),
        _novelty(shift),
        _outside(shift),
        _mixture(shift),
        accuracy_words(shift),
    ]
    return [sentence for sentence in found if sentence]


def headline(shift: SiteShift) -> str:
    """How the site stands beside the sources: by its rank among them, or by rows unlike anything seen."""
    columns = f" ({', '.join(shift.far_columns)})" if shift.far_columns else ""
    if shift.mostly_outside:
        return (
            f"{shift.data} is unlike all sources: {percent(shift.novelty.unlike)} of its rows are outside what was "
            f"seen; check units and columns{columns}."
        )
    check = f" Check the units of its columns{columns}." if columns else ""
    farther = shift.rank is not None and shift.rank.farther
    if shift.too_few and not (shift.differs or shift.novelty.higher or farther):
        few = f"{_too_few(shift)} are too few to say whether there is a shift ({FEWEST_ROWS} are needed)"
        return f"{shift.data}: {few}.{_many_outside(shift)}{check}"
    return f"{shift.data} is {_place(shift)}.{_many_outside(shift)}{check}"


def _place(shift: SiteShift) -> str:
    found, alike = shift.rank, shift.alike
    if found is None:
        said = "detectably different from" if shift.differs else "not detectably different from"
        return f"{said} the rows of training; with fewer than two sources there is no scale to read that by"
    place = f"rank {found.rank} of {found.sites}"
    if found.farther and found.can_be_significant:
        most = "any" if found.rank == 1 else f"{found.sites - found.rank} of {found.sites - 1}"
        words = f"farther from the sources than {most} of them {'is' if found.rank == 1 else 'are'} from the others"
        return f"{words} ({place}, p = {found.p_value:.2g})"
    if found.farther:
        why = (
            "no p-value, as groups of rows (--keep-together) are known of some sites only"
            if found.p_value is None
            else f"with {found.sites - 1} sources this cannot be significant"
        )
        return f"farther from the sources than any of them is from the others ({place}; {why})"
    like = "" if alike is None else f"like {alike.name}; "
    other = "" if alike is not None or shift.as_sources_together else ", but of another composition than any of them"
    return f"{like}no farther from the sources than they are from one another ({place}){other}"


def _too_few(shift: SiteShift) -> str:
    """Whose rows are too few, in numbers."""
    what = "groups of rows" if shift.kept_together else "rows"
    if shift.groups < FEWEST_ROWS:
        return f"{shift.groups} {what}"
    return f"{shift.compared_groups} {what} of the sources"


def _many_outside(shift: SiteShift) -> str:
    found = shift.novelty
    if found.unlike <= max(FEW_OUTSIDE, found.unlike_of_sources):
        return ""
    return (
        f" {percent(found.unlike)} of its rows are outside what was seen, usually {percent(found.unlike_of_sources)}."
    )


def _distance(shift: SiteShift) -> str:
    """The scale, and the source that is nearest."""
    near = "" if shift.nearest is None else f" Nearest is {shift.nearest.name} ({shift.nearest.distance:.2f})."
    if shift.rank is None:
        return f"It is {shift.distance:.2f} from the rows of training.{near}"
    found = shift.rank
    low, high = (f"{_root(end(found.squared_of_sources)):.2f}" for end in (min, max))
    return (
        f"With {_each(found)} of every site, it is {_root(found.squared):.2f} from all others together, a source "
        f"{low if low == high else f'{low} to {high}'}.{near}"
    )


def _each(found: SiteRank) -> str:
    if found.groups is None:
        return f"{found.rows} rows"
    rows = found.rows // found.groups
    return f"{found.groups} groups of rows and {rows} {'row' if rows == 1 else 'rows'} of each"


def _detectable(shift: SiteShift) -> str:
    what = "whole groups of rows" if shift.kept_together else "rows"
    how = f"p = {shift.p_value:.2g}, {shift.permutations:,} permutations of {what}"
    if shift.differs:
        return f"A difference from all sources together is detectable ({how}), which says nothing of its size."
    few = " With so few only a large one could be." if shift.too_few else ""
    return f"No difference from all sources together is detectable ({how}).{few}"


def _root(squared: float) -> float:
    return math.sqrt(max(0.0, squared))


def _novelty(shift: SiteShift) -> str:
    new = shift.novelty
    return (
        f"{percent(new.unlike)} of its {shift.rows:,} rows are unlike anything seen, and "
        f"{percent(new.unlike_of_sources)} of the rows of the sources; a row of it is more novel than one of theirs "
        f"{percent(new.auroc)} of the time (AUROC {new.auroc:.2f}, p = {new.p_value:.2g})."
    )


def _outside(shift: SiteShift) -> str:
    found = shift.new_part
    part = (
        f" About {percent(found.weight)} ({_ends(found.low, found.high)}) of its rows look new and are alike: perhaps "
        "something that no source had."
        if found is not None and found.is_there and not shift.mostly_outside and not shift.as_on_sources
        else ""
    )
    low, high = (percent(end(source.outside for source in shift.sources)) for end in (min, max))
    ends = high if low == high else f"{low.removesuffix(' %')} to {high}"
    return f"{percent(shift.outside)} of it lies outside of what the bases express, of a source {ends}.{part}"


def untold(shift: SiteShift) -> bool:
    """Whether the bases express so little of a site that what it draws on depends on them alone."""
    return shift.outside >= _NEARLY_ALL


def _mixture(shift: SiteShift) -> str:
    if untold(shift):
        return "The bases express next to nothing of it: what it draws on cannot be estimated."
    largest = sorted(shift.mixture, key=lambda basis: -basis.share)
    spoken = [basis for place, basis in enumerate(largest[:_NAMED]) if place == 0 or basis.share >= _LITTLE]
    names = [source.name for source in shift.sources]
    told = []
    for place, basis in enumerate(spoken):
        whose, level = stands_for(basis, names), f"{percent(shift.level)} interval " * (place == 0)
        ends = f"{level}{_ends(basis.low, basis.high)}"
        told.append(f"{percent(basis.share)} ({ends}) on basis {basis.basis}{whose and f', {whose}'}")
    return f"It draws {'; '.join(told)}." if told else ""


def stands_for(basis: BasisShare, names: Sequence[str]) -> str:
    """Whose a basis is, as a sentence goes on."""
    words = whose(basis, names)
    if words.startswith("mostly "):
        return f"which stands mostly for {words.removeprefix('mostly ')}"
    return "which all sources use alike" if words == _ALIKE else words and f"which stands for {words}"


def whose(basis: BasisShare, names: Sequence[str]) -> str:
    """Whose a basis is, by the weight that rows of each source give it: ``mostly va (93 %)``."""
    if len(names) < 2 or not sum(basis.of_sources):
        return ""
    shares, fair = sorted(zip(basis.of_sources, names, strict=True), key=lambda pair: -pair[0]), 1 / len(names)
    if shares[0][0] >= max(_MOST, _MORE_OFTEN * fair):
        return f"mostly {shares[0][1]} ({percent(shares[0][0])})"
    if shares[0][0] < _MORE_OFTEN * fair and shares[-1][0] >= fair / _MORE_OFTEN:
        return _ALIKE
    return " and ".join([f"{name} ({percent(share)})" for share, name in shares if share > fair][:_NAMED])


def accuracy_words(shift: SiteShift) -> str:
    """What to expect, how far such estimates were off, and the truth where it is known."""
    true = shift.true_accuracy
    truth = "" if true is None else f" Its true accuracy there is {_points(true)} %."
    return f"{_expected(shift)}{truth}".strip()


def _expected(shift: SiteShift) -> str:
    found, known = shift.accuracy, shift.accuracy_of_sources
    if shift.as_on_sources and known is not None:
        return f"No shift was seen: expect the accuracy that it has on {shift.compared}, {_points(known)} %."
    beside = f"{_left_out(found)}{'' if known is None else f' It has {_points(known)} % on {shift.compared}.'}"
    if found is None and not (shift.no_accuracy and shift.mostly_outside):
        return shift.no_accuracy
    if found is None or found.value is None:
        help_ = "Labels of some dozen rows would measure it (gated-domains evaluate); more sources would help."
        if shift.mostly_outside:
            help_ = "Check units and columns of the file, then run shift again."
        if found is None or shift.mostly_outside:
            said = f"{percent(shift.novelty.unlike)} of its rows are outside what was seen"
        elif found.error is None:
            said = "how far off it would be is not known, as one source alone was left out of training"
        else:
            ends = f"{_points(found.low)} to {_points(found.high)} %"
            said = f"it may be anything from {ends}, as estimates for sources left out of training were " + (
                f"{_points(found.error)} points off on average"
            )
        return f"The accuracy there cannot be estimated: {said}.{beside} {help_}"
    return (
        f"The model will probably be {_points(found.value)} % ({_points(found.low)} to {_points(found.high)}) accurate "
        f"there.{beside} Estimates made in the same way for {len(found.left_out)} sources left out of training were "
        f"{_points(found.error or 0.0)} points off on average."
    )


def _left_out(found: EstimatedAccuracy | None) -> str:
    """What models had on sources that they were not trained on: the fairest guess before any label is known."""
    if found is None or not found.left_out:
        return ""
    low, high = (_points(end(one.true for one in found.left_out)) for end in (min, max))
    if len(found.left_out) == 1:
        return f" Left out of training, {found.left_out[0].name} had {low} %."
    return f" Left out of training in turn, its sources had {low if low == high else f'{low} to {high}'} %."


def percent(share: float) -> str:
    """``14 %``."""
    return f"{100 * share:.0f} %"


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def _ends(low: float, high: float) -> str:
    return f"{100 * low:.0f} to {100 * high:.0f}"
