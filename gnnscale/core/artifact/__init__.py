"""Artefacts: made once, identified by what decides them, checked, and reopened."""
