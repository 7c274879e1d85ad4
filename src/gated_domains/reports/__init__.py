"""What run folders say: tables, pictures, one page. Reads files, never imports torch, knows no method."""

from gated_domains.reports.page import write_page
from gated_domains.reports.table import Comparison
from gated_domains.runs.collection import RunCollection, gather
from gated_domains.runs.result import RunResult, read_results

__all__ = ["Comparison", "RunCollection", "RunResult", "gather", "read_results", "write_page"]
