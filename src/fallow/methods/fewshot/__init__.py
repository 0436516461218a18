"""Learning to learn from few examples: MAML, what composes with it, and the baselines."""
