"""L2F's table B: see :mod:`fallow.reproduce.fewshot_images`; the difference of two methods needs seeds."""

from fallow.reproduce.fewshot_images import run

SEEDS = 3

__all__ = ["SEEDS", "run"]
