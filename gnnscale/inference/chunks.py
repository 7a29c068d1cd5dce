"""Chunks of a layer's vertices, loaded when they are computed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from gnnscale.backend.feature_loading import LoadedChunk
from gnnscale.core import Array


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive output vertices of a layer, with a function that loads their inputs."""

    first: int  #: output row of the first vertex
    load: Callable[[], LoadedChunk]  #: loads the chunk, in any thread
    vertices: Array | None = None  #: ids of the vertices; None if the layer does not need ids


def as_chunks(chunks: Iterable[LoadedChunk]) -> Iterator[Chunk]:
    """Yield chunks that are already loaded."""
    first = 0
    for chunk in chunks:
        yield Chunk(first=first, load=partial(_return, chunk))
        first += chunk[0].num_dst


def _return(chunk: LoadedChunk) -> LoadedChunk:
    return chunk


def in_order(
    loads: Iterable[tuple[Array, Callable[[], LoadedChunk]]], first: int = 0
) -> Iterator[Chunk]:
    """Yield consecutive chunks from vertices and their load functions.

    Args:
        loads: vertices of a chunk, and the function that loads it.
        first: output row of the first vertex.
    """
    for vertices, load in loads:
        yield Chunk(first=first, load=load, vertices=vertices)
        first += len(vertices)
