"""Predictions of a trained model, and the graph's metric of them."""
