"""C simulation of FPGA boards: the kernels, compiled for the host."""
