# Runs Vitis HLS on the kernel, for `make hls_csim`, `hls_csynth` or `hls_cosim`. Never run so far.
#
# design.tcl sets the part, the clock period in nanoseconds, and the words of each port's buffer.
source design.tcl

set goal $::env(GNNSCALE_GOAL)
set flags "-std=c++17 -I[pwd]/include -I[pwd] -DGNNSCALE_DESIGN $layer_flags"

open_project -reset build/hls
set_top gnnscale_step
add_files kernels/step.cpp -cflags $flags
add_files -tb testbench.cpp -cflags $flags
add_files -tb vectors
open_solution -reset -flow_target vitis solution
set_part $part
create_clock -period $period

# Co-simulation reserves this many words for each port.
foreach {port words} $depths {
  set_directive_interface -mode m_axi -bundle $port -depth $words gnnscale_step $port
}

if {$goal eq "csim"} {
  csim_design -argv "[pwd]/vectors"
} else {
  csynth_design
  if {$goal eq "cosim"} {
    cosim_design -argv "[pwd]/vectors"
  }
}
exit
