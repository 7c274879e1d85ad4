"""A new site in sentences: the answer, then novelty, what it draws on, and the accuracy to expect."""

from __future__ import annotations

from collections.abc import Sequence

from gated_domains.reports.site_shift import BasisShare, SiteShift

_FEW_ROWS = 50
_NAMED = 3  # bases that are spoken of; the table has all
_LITTLE = 0.05  # of a site: a basis below is not spoken of
_MOST = 0.5  # share from which on one source is what a basis mostly stands for
_MORE_OFTEN = 1.5  # times the share that each would have, from which on a source stands out
_WIDE = 0.6  # of an interval of accuracies: it leaves the better part of them open
_NEARLY_ALL = 0.9  # of a site outside of what the bases express
_ALIKE = "all alike"


def sentences(shift: SiteShift) -> list[str]:
    """The answer first."""
    found = [headline(shift), _novelty(shift), _outside(shift), _mixture(shift), accuracy_words(shift)]
    return [sentence for sentence in found if sentence]


def headline(shift: SiteShift) -> str:
    """Whether the site is like those of training, and by what scale."""
    said = f"distance {shift.distance:.2f}, p = {shift.p_value:.2g}"
    if shift.usual is not None:
        low, high = (f"{end:.2f}" for end in shift.usual)
        said += f"; a source is {low if low == high else f'{low} to {high}'} from the others"
    if not shift.differs:
        few = f" Of {shift.rows} rows only a large one could be." if shift.rows < _FEW_ROWS else ""
        return f"No difference between {shift.data} and the sources of training was seen ({said}).{few}"
    near = "" if shift.nearest is None else f" Nearest is {shift.nearest.name} ({shift.nearest.distance:.2f})."
    return f"{shift.data} is not like the sources of training together ({said}).{_how_far(shift)}{near}"


def _how_far(shift: SiteShift) -> str:
    if shift.usual is None or shift.usual[0] == shift.usual[1]:
        return ""
    far = shift.distance > shift.usual[1]
    return " No source is that far from the others." if far else " Sources differ from each other as much."


def _novelty(shift: SiteShift) -> str:
    new = shift.novelty
    return (
        f"{percent(new.unlike)} of its {shift.rows:,} rows are unlike anything seen, and "
        f"{percent(new.unlike_of_sources)} of the rows of the sources; a row of it is more novel than one of theirs "
        f"{percent(new.auroc)} of the time (AUROC {new.auroc:.2f})."
    )


def _outside(shift: SiteShift) -> str:
    found = shift.new_part
    part = (
        f" About {percent(found.weight)} ({_ends(found.low, found.high)}) of its rows look new and are alike: perhaps "
        "something that no source had."
        if found is not None and found.is_there
        else ""
    )
    low, high = (percent(end(source.outside for source in shift.sources)) for end in (min, max))
    ends = high if low == high else f"{low.removesuffix(' %')} to {high}"
    return f"{percent(shift.outside)} of it lies outside of what the bases express, of a source {ends}.{part}"


def untold(shift: SiteShift) -> bool:
    """Whether the bases express so little of a site that what it draws on hangs on them alone."""
    return shift.outside >= _NEARLY_ALL


def _mixture(shift: SiteShift) -> str:
    if untold(shift):
        return "The bases express next to nothing of it: what it draws on cannot be told."
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
    found, true = shift.accuracy, shift.true_accuracy
    truth = "" if true is None else f" Its true accuracy there is {_points(true)} %."
    if found is None:
        return f"{shift.no_accuracy}{truth}".strip()
    known = shift.accuracy_of_sources
    beside = "" if known is None else f"; it has {_points(known)} % on {shift.compared}"
    off = (
        " Nobody knows how far off that may be: one source alone was left out of training."
        if found.error is None
        else f" Foreseen in the same way, the accuracy on {len(found.left_out)} sources left out of training was off "
        f"by {_points(found.error)} points on average."
    )
    wide = (
        " An interval this wide says that nobody can tell yet: have some answers checked."
        if found.error is not None and found.high - found.low > _WIDE
        else ""
    )
    return (
        f"The model will probably be {_points(found.value)} % ({_points(found.low)} to {_points(found.high)}) accurate "
        f"there{beside}.{off}{wide}{truth}"
    )


def percent(share: float) -> str:
    """``14 %``."""
    return f"{100 * share:.0f} %"


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def _ends(low: float, high: float) -> str:
    return f"{100 * low:.0f} to {100 * high:.0f}"
