"""Partitioning: division of a graph among the devices of a run."""

from gnnscale.partition.base import (
    NO_PART,
    UNREACHED,
    Forecast,
    NoPartitioner,
    PartitionerConfig,
    Parts,
)
from gnnscale.partition.build import (
    PICTURE_FILE,
    make_partition,
    partition_path,
    write_parts,
    write_rows,
)
from gnnscale.partition.edge_cut.libraries import EdgeCut, Metis, MtKaHyPar
from gnnscale.partition.hierarchical import Hierarchical
from gnnscale.partition.metrics import PartitionStats
from gnnscale.partition.pagraph import PaGraph
from gnnscale.partition.shard_store import view_of_part, write_part
from gnnscale.partition.simple import P3, FromFile, Hash, Random, Range
from gnnscale.partition.store import Partition, read_partition
