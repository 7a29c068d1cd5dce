"""Checkpoints: everything that a stopped run needs to resume."""
