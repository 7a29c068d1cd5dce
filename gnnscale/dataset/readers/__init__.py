"""One published layout a module."""
