"""torchvision where its compiled operators are missing: declared, so that it, and whatever imports it, can be imported.

Beside a CPU build of torch, torchvision from the registry installs and then fails to import; torchmetrics, transformers
and timm import it wherever it is installed, and fail with it.
"""

from __future__ import annotations

import importlib.util
import sys

import torch

_OPERATORS = ("nms", "qnms")  # those that its import asks for
_declared: list[torch.library.Library] = []  # a declaration lasts as long as its library


def let_torchvision_import() -> None:
    """Import torchvision where it is installed, with empty operators in place of those that are not there."""
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what was half imported
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            if not hasattr(torch.ops.torchvision, name):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
        importlib.import_module("torchvision")
