"""Hyperparameters learned while training, by implicit gradients."""
