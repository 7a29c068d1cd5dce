"""Partitions: how a graph is divided among the devices of a run."""

from gnnscale.partition.by_id import Given, Hash, Random, Range
from gnnscale.partition.edge_cut.libraries import EdgeCut, Metis, MtKaHyPar
from gnnscale.partition.figures import PartFigures, PartitionFigures
from gnnscale.partition.hierarchical import Hierarchical
from gnnscale.partition.make import PICTURE_FILE, make_partition, place_of, write_parts, write_rows
from gnnscale.partition.p3 import P3
from gnnscale.partition.pagraph import PaGraph
from gnnscale.partition.part_store import view_of_part, write_part
from gnnscale.partition.partitioner import (
    NO_PART,
    UNREACHED,
    Forecast,
    NoPartitioner,
    PartitionerConfig,
    Parts,
)
from gnnscale.partition.store import Partition, read_partition
