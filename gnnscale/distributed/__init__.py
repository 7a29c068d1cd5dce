"""The process group of a run, and what its workers sum, gather and trade."""
