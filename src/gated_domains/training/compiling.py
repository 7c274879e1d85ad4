"""The objective of a method as torch.compile makes it: what lies between large products becomes few kernels.

Compiling takes some ten seconds the first time a process meets an architecture; other networks of the same architecture
find it done. Random numbers (dropout, mixed styles) are drawn in another way than without.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import torch
import torch._dynamo
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException

from gated_domains.methods.method import Method, Terms

BACKEND: Any = "inductor"
CompileError = TorchDynamoException
"""What is raised where an objective cannot be compiled: no compiler for C, a step that a graph cannot hold."""
_SETTINGS: dict[str, Any] = {
    "recompile_limit": 256,  # architectures that one process may meet
    "accumulated_recompile_limit": 4096,
    "skip_nnmodule_hook_guards": False,  # or a network whose styles are mixed would be taken for one without
}


def compiled_objective(method: Method, *batch: Tensor | int | None) -> Terms:
    """The terms of the loss, for the parts of a batch in the order that ``Method.forward`` takes."""
    with torch._dynamo.config.patch(_SETTINGS):
        return cast(Terms, _compiled(BACKEND)(method, *batch))


@cache
def _compiled(backend: Any) -> Any:
    return torch.compile(_objective, dynamic=False, backend=backend)


def _objective(method: Method, *batch: Any) -> Any:
    return method(*batch)
