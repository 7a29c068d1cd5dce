"""Python API: ``gnnscale.train``, and the programming interface of HitGNN (section IV-C, Table II).

Each function of HitGNN has one here:

======================  ========================  ==============================================
HitGNN                  here                      purpose
======================  ========================  ==============================================
``Graph_Partition``     ``graph_partition``       assigns vertices and edges to devices
``Feature_Storing``     ``feature_storing``       chooses where devices read features from
``GNN_Parameters``      ``gnn_parameters``        number of layers and their widths
``GNN_Computation``     ``gnn_computation``       a built-in architecture, or "customize"
``Scatter``             ``Layer.scatter``         computes the message along an edge
``Gather``              ``Layer.gather``          reduces the messages of a vertex
``Update``              ``Layer.update``          computes a vertex's new row
``GNN_Model``           ``gnn_model``             builds a model of computation and parameters
``FPGA_Metadata``       ``fpga_metadata``         resources of an FPGA's dies, and their memory
``Platform_Metadata``   ``platform_metadata``     devices, their rates and links; or FPGAs
``Generate_Design``     ``generate_design``       explores designs, and generates the best one
``Init``                ``init``                  loads the design, or compiles its simulation
``Load_Input_Graph``    ``load_input_graph``      names the input graph
``Start_training``      ``start_training``        trains
``Save_model``          ``save_model``            writes the trained weights
======================  ========================  ==============================================

The paper's program assigns part i to device i in a loop. Here a program names the algorithm that
computes all parts, or passes a function.

A run equals that of ``gnnscale train`` with equal options: one worker process per device,
default options from ``gnnscale/configs``, checkpoints and a run directory.
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
    "Computation",
    "FpgaPlatform",
    "Layer",
    "ModelParameters",
    "OptionGroup",
    "OwnerFunction",
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
