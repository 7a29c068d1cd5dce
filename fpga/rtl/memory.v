// A memory that is written in one place and read in another, of blocks of BRAM ("block") or URAM
// ("ultra"): what is read is there a cycle later. Vitis HLS has such a module for each array
// (bind_storage ram_2p).
module block_memory #(parameter WIDTH = 1, DEPTH = 1, BITS = 1, STYLE = "block") (
  input clk,
  input [BITS-1:0] read_address,
  output reg [WIDTH-1:0] read_data,
  input [BITS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input write_enable
);
  (* ram_style = STYLE *) reg [WIDTH-1:0] words [0:DEPTH-1];
  always @(posedge clk) begin
    read_data <= words[read_address];
    if (write_enable) words[write_address] <= write_data;
  end
endmodule

// The same of LUTs: what is read is there at once.
module lut_memory #(parameter WIDTH = 1, DEPTH = 1, BITS = 1) (
  input clk,
  input [BITS-1:0] read_address,
  output [WIDTH-1:0] read_data,
  input [BITS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input write_enable
);
  (* ram_style = "distributed" *) reg [WIDTH-1:0] words [0:DEPTH-1];
  assign read_data = words[read_address];
  always @(posedge clk) if (write_enable) words[write_address] <= write_data;
endmodule
