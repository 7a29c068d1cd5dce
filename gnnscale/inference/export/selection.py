"""Files of scores of pairs, and of the best partners of vertices, by the model of a link run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gnnscale.core import Float32Array, IntArray
from gnnscale.core.files import whole_file
from gnnscale.inference.export.outputs import RowIds
from gnnscale.inference.export.writers import ids_file, load_pyarrow, write_header

if TYPE_CHECKING:
    import pyarrow


def write_scores(
    file: Path, pairs: IntArray, scores: Iterable[Float32Array], own: pyarrow.Array | None
) -> None:
    """Write a row for each of ``pairs`` ``[n, 2]``, atomically.

    A ``.parquet`` file has the columns ``source``, ``target`` and ``score``, a ``.npy`` file the
    scores ``[n]``.

    Args:
        scores: of all pairs, some after the other.
        own: ``[num_vertices]`` the user's ids; None for numbers.

    Raises:
        OSError: it cannot be written.
    """
    first = 0
    if file.suffix == ".npy":
        with whole_file(file, wait=False) as stream:
            write_header(stream, np.dtype(np.float32), (len(pairs),))
            for some in scores:
                _append(stream, some)
        return
    with _parquet(file) as write:
        for some in scores:
            ends = pairs[first : first + len(some)]
            write(_ids(ends[:, 0], own), _ids(ends[:, 1], own), some)
            first += len(some)


def write_partners(
    file: Path,
    vertices: IntArray,
    found: Iterable[tuple[IntArray, Float32Array]],
    k: int,
    own: pyarrow.Array | None,
) -> None:
    """Write the ``k`` best partners of each of ``vertices``, atomically.

    A ``.parquet`` file has ``k`` rows for each vertex, best first: ``source``, ``target``,
    ``score``. A ``.npy`` file has the scores ``[n, k]``, and ``.ids.npy`` beside it the partners.

    Args:
        found: partners ``[s, k]`` and scores ``[s, k]`` of all vertices, some after the other.
        own: as in ``write_scores``.

    Raises:
        OSError: it cannot be written.
    """
    first = 0
    if file.suffix == ".npy":
        dtype = RowIds(vertices=vertices[:0], own=own).array(0, 0).dtype
        with whole_file(file, wait=False) as stream, whole_file(ids_file(file)) as ids:
            write_header(stream, np.dtype(np.float32), (len(vertices), k))
            write_header(ids, dtype, (len(vertices), k))
            for partners, scores in found:
                _append(stream, scores)
                flat = RowIds(vertices=partners.reshape(-1), own=own)
                _append(ids, flat.array(0, partners.size))
        return
    with _parquet(file) as write:
        for partners, scores in found:
            some = np.repeat(vertices[first : first + len(partners)], k)
            write(_ids(some, own), _ids(partners.reshape(-1), own), scores.reshape(-1))
            first += len(partners)


def _ids(vertices: IntArray, own: pyarrow.Array | None) -> Any:
    return RowIds(vertices=vertices, own=own).slice(0, len(vertices))


def _append(stream: IO[bytes], array: Any) -> None:
    stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@contextmanager
def _parquet(file: Path) -> Iterator[Any]:
    """Yield a function that adds rows: sources, targets, scores."""
    pa = load_pyarrow()
    from pyarrow import parquet

    writer: Any = None
    with whole_file(file, wait=False) as stream:

        def write(sources: Any, targets: Any, scores: Float32Array) -> None:
            nonlocal writer
            columns = {"source": sources, "target": targets, "score": scores}
            table = pa.table(columns)
            if writer is None:
                writer = parquet.ParquetWriter(stream, table.schema)
            writer.write_table(table)

        yield write
        writer.close()
