"""Chunks of a layer's vertices that are yet to be loaded."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from gnnscale.backend.feature_loading import LoadedChunk
from gnnscale.core import Array


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A chunk that is yet to be loaded."""

    first: int  #: the row of its first vertex among the layer's
    load: Callable[[], LoadedChunk]  #: loads it, in any thread
    vertices: Array | None = None  #: of the chunk; None if the layer reads no rows of theirs


def as_chunks(chunks: Iterable[LoadedChunk]) -> Iterator[Chunk]:
    """Yield pieces of chunks that are loaded already."""
    first = 0
    for chunk in chunks:
        yield Chunk(first=first, load=partial(_loaded, chunk))
        first += chunk[0].num_dst


def _loaded(chunk: LoadedChunk) -> LoadedChunk:
    return chunk


def in_order(
    loads: Iterable[tuple[Array, Callable[[], LoadedChunk]]], first: int = 0
) -> Iterator[Chunk]:
    """Yield a piece for vertices and what loads them, one after the other."""
    for vertices, load in loads:
        yield Chunk(first=first, load=load, vertices=vertices)
        first += len(vertices)
