"""A board whose kernels are C++ compiled for the processor."""
