"""Readers: one published layout per module, or per folder."""
