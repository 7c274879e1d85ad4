"""Trainings as TensorBoard and MLflow show them, written from run folders. Needs the extra ``track``."""

from gated_domains.experiments.tracking.tracking import TRACKERS, Tracking, check_trackers, tracked

__all__ = ["TRACKERS", "Tracking", "check_trackers", "tracked"]
