"""The gradient of a validation loss by hyperparameters, by the implicit function theorem. Usable without the loop."""

from fallow.hypergradients.cleaning import ExampleWeights
from fallow.hypergradients.implicit import Record, hypergradient
from fallow.hypergradients.noise import InputNoise
from fallow.hypergradients.penalty import SquaredDecay
from fallow.hypergradients.schedule import T1T2, MetaSchedule
from fallow.hypergradients.smoothing import LabelSmoothing
from fallow.hypergradients.solvers import CG, MINRES, Exact, Identity, Neumann, Nystrom

__all__ = [
    "CG",
    "MINRES",
    "T1T2",
    "Exact",
    "ExampleWeights",
    "Identity",
    "InputNoise",
    "LabelSmoothing",
    "MetaSchedule",
    "Neumann",
    "Nystrom",
    "Record",
    "SquaredDecay",
    "hypergradient",
]  # fmt: skip
