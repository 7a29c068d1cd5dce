"""Mini-batches for a user's own training loop."""
