"""What run folders say: tables and pictures. Reads files, never imports torch, knows no method."""

from gated_domains.reports.pictures import draw_comparison, draw_gates
from gated_domains.reports.results import RunResult, read_results
from gated_domains.reports.table import Comparison

__all__ = ["Comparison", "RunResult", "draw_comparison", "draw_gates", "read_results"]
