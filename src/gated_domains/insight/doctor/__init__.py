"""The doctor: does a gated layer do what it is there for, what is wrong where it does not, and what helps."""

from gated_domains.insight.doctor.examining import examine
from gated_domains.insight.doctor.findings import Diagnosis, Finding, Level

__all__ = ["Diagnosis", "Finding", "Level", "examine"]
