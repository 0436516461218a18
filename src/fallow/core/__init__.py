"""The one loop: methods, their context, the clock, the engine, checkpoints, the record of a run."""
