"""Stores on disk: written whole or not at all, verified, and raw files downloaded."""
