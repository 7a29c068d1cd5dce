"""Runs from Python: ``gnnscale.train``, and the programming interface of HitGNN.

That is one name here for each of HitGNN's own (section IV-C, Table II):

======================  ========================  ==============================================
HitGNN                  here                      what it does
======================  ========================  ==============================================
``Graph_Partition``     ``graph_partition``       assigns vertices and edges to devices
``Feature_Storing``     ``feature_storing``       says where devices read features from
``GNN_Parameters``      ``gnn_parameters``        number of layers and their widths
``GNN_Computation``     ``gnn_computation``       a known architecture, or "customize"
``Scatter``             ``Layer.scatter``         makes the message along an edge
``Gather``              ``Layer.gather``          reduces the messages of a vertex
``Update``              ``Layer.update``          makes a vertex's new row
``GNN_Model``           ``gnn_model``             builds a model of computation and parameters
``FPGA_Metadata``       ``fpga_metadata``         resources of an FPGA's dies, and their memory
``Platform_Metadata``   ``platform_metadata``     devices, their rates and links; or FPGAs
``Generate_Design``     ``generate_design``       explores designs, and generates the best one
``Init``                ``init``                  loads the design, or compiles its simulation
``Load_Input_Graph``    ``load_input_graph``      names the input graph
``Start_training``      ``start_training``        trains
``Save_model``          ``save_model``            writes the trained weights
======================  ========================  ==============================================

Where the paper's program hands part i to device i in a loop, a program here
names the algorithm that makes all parts, or gives a function of its own.

A run is what ``gnnscale train`` makes of the same options: one worker process for each device, the
same defaults (``gnnscale/configs``), checkpoints and run directory.
"""

from gnnscale.api.hitgnn.design import (
    Computation,
    ModelParameters,
    OptionGroup,
    OwnerFunction,
    feature_storing,
    gnn_computation,
    gnn_model,
    gnn_parameters,
    graph_partition,
)
from gnnscale.api.hitgnn.hardware import (
    Bitstream,
    FpgaPlatform,
    Runtime,
    fpga_metadata,
    generate_design,
    init,
    platform_metadata,
)
from gnnscale.api.hitgnn.training import Training, load_input_graph, save_model, start_training
from gnnscale.nn.scatter_gather import ScatterGatherUpdate as Layer

__all__ = [
    "Bitstream",
    "Choice",
    "Computation",
    "FpgaPlatform",
    "Layer",
    "Owners",
    "Parameters",
    "Runtime",
    "Training",
    "feature_storing",
    "fpga_metadata",
    "generate_design",
    "gnn_computation",
    "gnn_model",
    "gnn_parameters",
    "graph_partition",
    "init",
    "load_input_graph",
    "platform_metadata",
    "save_model",
    "start_training",
]
