"""A fuzzer for gnnscale: damaged files, stores and partitions, wrong calls, odd command lines."""
