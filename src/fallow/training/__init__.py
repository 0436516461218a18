"""One training: fit, the few-shot training, and the model that predicts."""
