"""What is minimised: one file a method, and a dict that names them all."""

from gated_domains.layer.experts import Prediction
from gated_domains.methods.arm_bn import ARMBN
from gated_domains.methods.cgd import CGD
from gated_domains.methods.coral import CORAL
from gated_domains.methods.erm import ERM, RetrainedLinear
from gated_domains.methods.erm_ensemble import Ensemble, ERMEnsemble
from gated_domains.methods.fish import Fish
from gated_domains.methods.gdu import GDU
from gated_domains.methods.gdu_groups import GroupGDU
from gated_domains.methods.gdu_paper import PaperGDU
from gated_domains.methods.group_dro import GroupDRO
from gated_domains.methods.irm import IRM
from gated_domains.methods.lisa import LISA
from gated_domains.methods.method import Classes, Method, Numbers, Objective, Problem, Terms

METHODS: dict[str, type[Method]] = {
    "gdu": GDU,
    "gdu-paper": PaperGDU,
    "gdu-groups": GroupGDU,
    "erm": ERM,
    "linear": RetrainedLinear,
    "erm-ensemble": ERMEnsemble,
    "ensemble": Ensemble,
    "coral": CORAL,
    "irm": IRM,
    "group-dro": GroupDRO,
    "fish": Fish,
    "lisa": LISA,
    "cgd": CGD,
    "arm-bn": ARMBN,
}

__all__ = [
    "ARMBN",
    "CGD",
    "CORAL",
    "ERM",
    "GDU",
    "IRM",
    "LISA",
    "METHODS",
    "Classes",
    "ERMEnsemble",
    "Ensemble",
    "Fish",
    "GroupDRO",
    "GroupGDU",
    "Method",
    "Numbers",
    "Objective",
    "PaperGDU",
    "Prediction",
    "Problem",
    "RetrainedLinear",
    "Terms",
]
