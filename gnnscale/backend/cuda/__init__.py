"""GPUs as training devices."""
