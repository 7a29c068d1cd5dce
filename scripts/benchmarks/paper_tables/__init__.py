"""Published tables and figures, and their predictions."""
