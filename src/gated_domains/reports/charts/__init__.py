"""Figures said once, drawn twice: by plotly on the page, by matplotlib as SVG, PNG and PDF."""

from gated_domains.reports.charts.chart import Axis, Chart, Heat, Marks, Panel, Rule

__all__ = ["Axis", "Chart", "Heat", "Marks", "Panel", "Rule"]
