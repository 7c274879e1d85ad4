"""Populations: many trainings of one architecture on cached features, whose steps are taken together."""

from gated_domains.training.population.population import Population
from gated_domains.training.population.suitable import odd_one_out, why_alone

__all__ = ["Population", "odd_one_out", "why_alone"]
