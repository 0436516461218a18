"""Few labels, and many examples without."""

from __future__ import annotations

from fallow.problems.labelled import Labelled


class SemiLabelled(Labelled):
    """Labelled examples beside unlabelled ones, for the methods that can use them; others learn from the labels."""
