"""What a run is logged to, beside its own files."""
