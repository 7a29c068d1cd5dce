"""Tiered store: host memory holds rows of a slower backing store, planned by the next batches."""
