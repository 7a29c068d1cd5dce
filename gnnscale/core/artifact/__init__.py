"""Artifacts: directories of arrays, identified by their options, made once and checked on reuse."""
