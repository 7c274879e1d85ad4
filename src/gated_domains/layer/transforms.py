"""Under which of torch's tracers code runs: checkpoints, custom operators, decisions on sizes do not suit them all."""

from __future__ import annotations

import torch


def exporting() -> bool:
    """True while a graph is traced for export, where a decision on the batch size would fix it."""
    told = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
    return bool(told())


def inside_transform() -> bool:
    """True inside vmap, grad and their kin; while a graph is being compiled, False."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None
