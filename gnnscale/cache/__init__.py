"""Caches: which adjacency lists and feature rows accelerators keep in their own memory."""
