"""What a trained model is worth."""

from fallow.evaluate.accuracy import Score, score

__all__ = ["Score", "score"]
