"""What a person says about their data: which column is the target, which the domain."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gated_domains.data.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a file or folder is to be read. What is left at its default is found out from the data.

    ``positive`` names the target values that become the one class of two. ``categorical`` columns are names even where
    they are written as numbers; ``drop`` columns are not read; ``metadata`` columns are kept beside the samples, for
    grouping, but are no inputs; ``keep_together`` is one of these (a patient), whose groups are never divided between
    training, validation and test. ``task`` is ``"classification"`` or ``"regression"``. ``image_size`` is the side of
    the square that images are fitted to.
    """

    target: str | None = None
    domain: str | None = None
    positive: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    keep_together: str | None = None
    task: str | None = None
    image_size: int | None = None

    def refuse_all_but(self, *allowed: str, what: str) -> None:
        """Refuse settings that mean nothing for this kind of data, rather than pass over them in silence."""
        for entry in fields(self):
            if entry.name not in allowed and getattr(self, entry.name) != entry.default:
                option = entry.name.replace("_", "-")
                raise DataError(f"--{option} means nothing for {what}; leave it out")
