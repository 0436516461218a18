"""Learning a task from shared parameters: the inner loop, and what is learned around it. Usable without the loop."""
