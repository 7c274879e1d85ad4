"""What is minimised: one file a method, and a dict that names them all."""

from gated_domains.methods.erm import ERM, RetrainedLinear
from gated_domains.methods.erm_ensemble import Ensemble, ERMEnsemble
from gated_domains.methods.gdu import GDU, PaperGDU
from gated_domains.methods.method import Method, Objective, Terms
from gated_domains.methods.prediction import Prediction
from gated_domains.methods.problem import Classes, Numbers, Problem

METHODS: dict[str, type[Method]] = {
    "gdu": GDU,
    "gdu-paper": PaperGDU,
    "erm": ERM,
    "linear": RetrainedLinear,
    "erm-ensemble": ERMEnsemble,
    "ensemble": Ensemble,
}

__all__ = [
    "ERM",
    "GDU",
    "METHODS",
    "Classes",
    "ERMEnsemble",
    "Ensemble",
    "Method",
    "Numbers",
    "Objective",
    "PaperGDU",
    "Prediction",
    "Problem",
    "RetrainedLinear",
    "Terms",
]
