"""The same colour for the same method and the same domain in every figure; all can be told apart by everybody."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

# Okabe and Ito's colours, their black a grey that is seen on a dark page too; past the last, the marker changes.
METHOD_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F")
# Tol's muted colours, for domains, so that nobody takes one for a method.
DOMAIN_COLOURS = (
    "#4477AA", "#CC6677", "#DDAA33", "#117733", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499", "#BB5566",
)  # fmt: skip
# Tol's light colours, for classes; past the last they come again, and names tell them apart.
CLASS_COLOURS = (
    "#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00", "#BB99CC", "#A9A9A9",
)  # fmt: skip
UNKNOWN = "#7F7F7F"
"""What nobody named."""
MARKERS = ("o", "s", "^", "D", "v", "P")
# Whatever else stands in a table, these are always drawn alike.
_FIXED = {"gdu": 0, "erm": 1, "linear": 2}


class Palette:
    """Colours and markers of methods (by the name and label of their rows) and of domains, in the order first met."""

    def __init__(self, methods: Iterable[tuple[str, str]] = (), domains: Iterable[str] = ()) -> None:
        self._methods: dict[str, int] = {}
        self._domains = {name: place for place, name in enumerate(dict.fromkeys(domains))}
        methods = list(dict.fromkeys(methods))
        for name, label in methods:
            place = _FIXED.get(name)
            if place is not None and place not in self._methods.values():
                self._methods[label] = place
        fixed = {name for name, _ in methods} & set(_FIXED)
        free = (place for place in count() if place not in {_FIXED[name] for name in fixed})
        for _, label in methods:
            if label not in self._methods:
                self._methods[label] = next(free)

    def method(self, label: str) -> str:
        """The colour of a method; grey for one that nobody named."""
        return METHOD_COLOURS[self._methods.get(label, 6) % len(METHOD_COLOURS)]

    def marker(self, label: str) -> str:
        """The marker of a method: the same colour never stands twice with one."""
        return MARKERS[self._methods.get(label, 0) // len(METHOD_COLOURS) % len(MARKERS)]

    def domain(self, name: str) -> str:
        """The colour of a domain; grey for one that nobody named."""
        place = self._domains.get(name)
        return UNKNOWN if place is None else DOMAIN_COLOURS[place % len(DOMAIN_COLOURS)]
