"""A partition of a user's own: the owner of every vertex is read from a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gnnscale.artifact.arrays import map_npy
from gnnscale.core.errors import ConfigError, GraphError, shown
from gnnscale.graph import Graph
from gnnscale.options.found import names
from gnnscale.partition.partitioner import (
    Forecast,
    PartitionerConfig,
    Parts,
    check_num_parts,
)

__all__ = ["Given", "check_owners"]


@dataclass(frozen=True, kw_only=True)
class Given(PartitionerConfig):
    """Whoever wrote the file says which part has which vertex.

    Attributes:
        owners: ``.npy`` file of ``[num_vertices]`` integers, named after its content: a partition
            that exists is told from others by this name.
    """

    owners: str = field(metadata=names("place"))

    algorithm: ClassVar[str] = "given"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Read the owners; hops and threads play no part.

        Raises:
            ConfigError: they are not one part for each vertex.
        """
        check_num_parts(graph, num_parts)
        source = f"partitioner.owners={shown(self.owners)}"
        try:
            found = map_npy(Path(self.owners))
        except GraphError as error:
            raise ConfigError(f"partitioner.owners={error}") from None
        owners = check_owners(found, graph, num_parts, source=source)
        return Parts(num_parts=num_parts, owner=owners)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take: the file's content, and its copy."""
        return Forecast(memory_bytes=10 * graph.num_vertices, seconds=graph.num_vertices * 1e-8)


def check_owners(owners: Any, graph: Graph, num_parts: int, *, source: str) -> NDArray[np.int16]:
    """Return ``owners`` as ``Parts`` keeps them.

    Args:
        owners: what should be ``[num_vertices]`` integers.
        graph: whose vertices are owned.
        num_parts: K.
        source: where they come from, for errors.

    Raises:
        ConfigError: they are not one part from 0 to K - 1 for each vertex.
    """
    found = np.asarray(owners)
    if found.shape != (graph.num_vertices,) or found.dtype.kind not in "iu":
        raise ConfigError(
            f"{source}: {found.dtype} of shape {list(found.shape)}, must be an integer for each of "
            f"{graph.num_vertices} vertices"
        )
    if len(found) and not 0 <= found.min() <= found.max() < num_parts:
        raise ConfigError(
            f"{source}: owners from {found.min()} to {found.max()}, allowed are 0 to "
            f"{num_parts - 1}, a part for each device"
        )
    return found.astype(np.int16)
