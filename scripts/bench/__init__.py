"""Benchmarks: ``python scripts/bench CASE``; a case is a module of ``cases``."""
