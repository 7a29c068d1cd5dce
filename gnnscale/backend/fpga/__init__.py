"""FPGA boards as training devices, real or simulated."""
