"""Caches and feature stores of a run: planned before workers start, opened by each worker."""
