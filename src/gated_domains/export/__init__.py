"""A trained model as a file that needs none of our code: ONNX, or a program of torch.export."""

from gated_domains.export.exporting import Exported, export_model

__all__ = ["Exported", "export_model"]
