"""Training on this machine: options, the loop, checkpoints, evaluation."""
