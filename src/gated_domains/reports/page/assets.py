"""What every page carries: its style, its script, and plotly's code, packed."""

from __future__ import annotations

import base64
import gzip
from functools import cache
from importlib.resources import files


@cache
def asset(name: str) -> str:
    """A file that lies beside this one."""
    return (files("gated_domains.reports.page") / name).read_text(encoding="utf-8")


@cache
def packed_plotly() -> str:
    """Plotly's code as gzip in base64, less than half as large; browsers unpack it in hundredths of a second."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode("utf-8"), 9, mtime=0)).decode("ascii")
