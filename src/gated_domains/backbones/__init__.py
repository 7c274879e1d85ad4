"""Inputs -> features, and the view that gates see: today, putting units into any model's head."""

from gated_domains.backbones.heads import fit_head, gating_rows, model_head, renew_coverage, replace_head

__all__ = ["fit_head", "gating_rows", "model_head", "renew_coverage", "replace_head"]
