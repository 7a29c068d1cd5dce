"""Parts of the FPGA kernels as RTL. C simulation and the resource model are compared with them."""
