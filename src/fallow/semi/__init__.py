"""Few labels, many images, as a study: a method beside its baseline and its controls, and a page to look at."""

from fallow.semi.plan import Plan, gather
from fallow.semi.study import Study, study
from fallow.semi.supervised import Supervised
from fallow.semi.training import Outcome, outcome, runs

__all__ = ["Outcome", "Plan", "Study", "Supervised", "gather", "outcome", "runs", "study"]
