"""Grids of runs: one after the other, by worker processes, or on a Ray cluster."""

from gated_domains.experiments.executors.choosing import choose_executor
from gated_domains.experiments.executors.executor import Executor
from gated_domains.experiments.executors.local import Workers
from gated_domains.experiments.executors.on_ray import RayCluster
from gated_domains.experiments.executors.one_by_one import OneByOne

__all__ = ["Executor", "OneByOne", "RayCluster", "Workers", "choose_executor"]
