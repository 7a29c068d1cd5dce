"""The sections of ``scripts/benchmarks/bench_cuda.py``."""
