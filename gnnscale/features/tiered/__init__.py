"""A tier: host memory that holds some rows of a slower source, by the batches to come."""
