"""One published layout per module."""
