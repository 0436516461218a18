"""Hyperparameters learned while training, by implicit gradients."""

from fallow.methods.hyper.cleaning import ExampleWeights
from fallow.methods.hyper.implicit import Record, hypergradient
from fallow.methods.hyper.noise import InputNoise
from fallow.methods.hyper.penalty import SquaredDecay
from fallow.methods.hyper.schedule import T1T2, Schedule
from fallow.methods.hyper.smoothing import LabelSmoothing
from fallow.methods.hyper.solvers import CG, MINRES, Exact, Identity, Neumann, Nystrom

__all__ = [
    "CG", "MINRES", "T1T2", "Exact", "ExampleWeights", "Identity", "InputNoise", "LabelSmoothing", "Neumann", "Nystrom",
    "Record", "Schedule", "SquaredDecay", "hypergradient",
]  # fmt: skip
