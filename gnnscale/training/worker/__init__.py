"""The parts of a training run, each of which opens itself, and where the run stands."""
