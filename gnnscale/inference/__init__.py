"""Exact and sampled inference, evaluation, prediction and export of a trained model."""
