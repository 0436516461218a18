"""Relative flatness of a layer, exact at the price of a plain step wherever there is a formula for it.

These functions know nothing of fallow's loop: they work in anyone's own.
"""

from fallow.flatness.choose import FORMS, Choice
from fallow.flatness.measure import explain, relative_flatness
from fallow.flatness.watch import Watch

__all__ = ["FORMS", "Choice", "Watch", "explain", "relative_flatness"]
