"""Whether code runs under ``torch.func``: some tools (checkpointing, custom operators) do not work in there."""

from __future__ import annotations

import torch


def inside_transform() -> bool:
    """True inside vmap, grad and their kin; while a graph is being compiled, False."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None
