"""Measurements of caches: hit rates, look-ahead, the cost model, and what planning takes."""
