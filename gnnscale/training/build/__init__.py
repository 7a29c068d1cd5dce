"""Caches in a run: planned before workers start, opened by each of them."""
