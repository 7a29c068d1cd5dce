"""GPUs: kernels, and what samples, reads and computes with them."""
