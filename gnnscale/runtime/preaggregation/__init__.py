"""Rows of the first layer's aggregation, computed once for a graph and kept on disk."""
