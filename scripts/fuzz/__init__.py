"""A fuzzer for gnnscale: damaged files, stores and partitions, wrong calls, odd command lines.

python scripts/fuzz TARGET says more with ``--help``; CONTRIBUTING.md says when to run it.
"""
