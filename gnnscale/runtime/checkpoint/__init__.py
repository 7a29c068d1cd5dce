"""Checkpoints: everything that a stopped run needs to go on."""
