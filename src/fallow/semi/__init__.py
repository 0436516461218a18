"""Few labels, many images, as a study: a method beside its baseline and its controls, and a page to look at."""

from fallow.semi.plan import StudyPlan, gather
from fallow.semi.study import Study, study
from fallow.semi.supervised import Supervised
from fallow.semi.training import Trained, outcome, runs

__all__ = ["Study", "StudyPlan", "Supervised", "Trained", "gather", "outcome", "runs", "study"]
