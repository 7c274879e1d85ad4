"""One page that a person would rather look at: what was asked, the answer, tables and pictures, from run folders."""

from gated_domains.reports.page.page import Page, write_charts, write_page
from gated_domains.reports.page.rendering import Files

__all__ = ["Files", "Page", "write_charts", "write_page"]
