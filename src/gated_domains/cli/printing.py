"""How commands print: text that hangs below its lead."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def print_hanging(console: Console, lead: Text, text: str) -> None:
    """Text after its lead, further lines below its start; one line where nobody watches, so that it can be searched."""
    width = max(20, console.width - lead.cell_len)
    lines = Text(text).wrap(console, width) if console.is_terminal else [Text(text)]
    for line in lines:
        line.rstrip()
        console.print(lead + line, soft_wrap=True)
        lead = Text(" " * lead.cell_len)
