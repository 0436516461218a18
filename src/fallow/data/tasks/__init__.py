"""Tasks to learn to learn from: few-shot regression and classification, drawn in whole meta-batches."""

from fallow.data.tasks.base import TaskBatch, Tasks, TaskStream
from fallow.data.tasks.episodes import Episodes
from fallow.data.tasks.mixture import Mixture
from fallow.data.tasks.sinusoid import Sinusoid

__all__ = ["Episodes", "Mixture", "Sinusoid", "TaskBatch", "TaskStream", "Tasks"]
