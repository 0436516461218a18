"""Learning to act: a Gaussian policy, advantages, surrogates and trust regions. Usable without the loop."""
