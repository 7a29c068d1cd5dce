"""What a run records of its steps and epochs."""
