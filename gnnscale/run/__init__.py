"""Options, tasks, checkpoints, records and observers of a training run."""
