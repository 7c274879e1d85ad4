"""PyTorch, for those who have it."""

from __future__ import annotations

from typing import Any


def pytorch() -> Any:
    """The module ``torch``, or an error that says how to get it."""
    try:
        import torch
    except ImportError as error:
        message = "layers go to and from PyTorch where it is installed: pip install torch"
        raise ImportError(message, name="torch") from error
    return torch
