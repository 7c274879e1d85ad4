"""Names of domains and penalties as parts of a key that MLflow and TensorBoard both take, no two alike."""

from __future__ import annotations

import hashlib
import re

_ODD = re.compile(r"[^\w. -]", re.ASCII)
_SIGNED = re.compile(r".*-[0-9a-f]{8}", re.DOTALL)
_LONGEST = 80  # a key has three parts at most, and MLflow takes 250 letters


def legal(name: str) -> str:
    """The name itself where it is legal; else what is legal of it, signed so that it stays distinct.

    >>> legal("location_43"), legal("a/b"), legal("a_b")
    ('location_43', 'a_b-c14cddc0', 'a_b')
    """
    kept = _ODD.sub("_", name).strip(" .")
    if kept == name and 0 < len(name) <= _LONGEST and not _SIGNED.fullmatch(name):
        return name
    signature = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{kept[:_LONGEST] or 'name'}-{signature}"


def key(*parts: str) -> str:
    """``key("validation", "domain", "a/b")``: the parts, each legal, between slashes."""
    return "/".join(map(legal, parts))
