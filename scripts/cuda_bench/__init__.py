"""The sections of ``scripts/bench_cuda.py``."""
