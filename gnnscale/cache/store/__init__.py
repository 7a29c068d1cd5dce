"""Caches at run time: feature stores that wrap the host's."""
