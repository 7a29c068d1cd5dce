"""Benchmarks: ``python scripts/benchmarks CASE``; a case is a module of ``cases``."""
