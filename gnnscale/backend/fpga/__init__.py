"""Training on FPGA boards, and on simulated ones."""
