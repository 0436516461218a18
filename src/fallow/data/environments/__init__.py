"""Where policies act: tasks that differ by a goal, walked through for all tasks and trajectories at once."""

from fallow.data.environments.base import Drawn, Environment, EnvironmentStream, Trajectories
from fallow.data.environments.navigation import Navigation

__all__ = ["Drawn", "Environment", "EnvironmentStream", "Navigation", "Trajectories"]
