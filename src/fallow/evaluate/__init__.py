"""What a trained model is worth."""

from fallow.evaluate.score import Score, score

__all__ = ["Score", "score"]
