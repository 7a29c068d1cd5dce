"""Stores on disk: written atomically, verified, and raw files downloaded."""
