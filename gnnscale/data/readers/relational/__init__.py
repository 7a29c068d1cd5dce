"""Relational tables: primary keys, foreign keys, times, and tables of tasks."""
