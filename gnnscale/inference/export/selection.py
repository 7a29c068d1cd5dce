"""Files of pair scores and of best partners, computed by link prediction."""

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
    file: Path, pairs: IntArray, scores: Iterable[Float32Array], user_ids: pyarrow.Array | None
) -> None:
    """Write the scores of ``pairs`` atomically.

    A ``.parquet`` file has columns ``source``, ``target`` and ``score``; a ``.npy`` file has the
    scores ``[n]``.

    Args:
        file: the file.
        pairs: ``[n, 2]`` sources and targets.
        scores: chunks of the scores, in order.
        user_ids: ``[num_vertices]`` user ids; None: ids are vertices.

    Raises:
        OSError: the file cannot be written.
    """
    first = 0
    if file.suffix == ".npy":
        with whole_file(file, wait=False) as stream:
            write_header(stream, np.dtype(np.float32), (len(pairs),))
            for chunk in scores:
                _append(stream, chunk)
        return
    with _open_parquet(file) as write:
        for chunk in scores:
            ends = pairs[first : first + len(chunk)]
            write(_ids(ends[:, 0], user_ids), _ids(ends[:, 1], user_ids), chunk)
            first += len(chunk)


def write_partners(
    file: Path,
    vertices: IntArray,
    chunks: Iterable[tuple[IntArray, Float32Array]],
    k: int,
    user_ids: pyarrow.Array | None,
) -> None:
    """Write the ``k`` best partners of each vertex atomically.

    A ``.parquet`` file has ``k`` rows for each vertex, best first, with columns ``source``,
    ``target`` and ``score``. A ``.npy`` file has the scores ``[n, k]``, and the file ``.ids.npy``
    next to it the partners.

    Args:
        file: the file.
        vertices: ``[n]`` vertices.
        chunks: partners ``[s, k]`` and scores ``[s, k]`` of consecutive vertices.
        k: partners of a vertex.
        user_ids: ``[num_vertices]`` user ids; None: ids are vertices.

    Raises:
        OSError: the file cannot be written.
    """
    first = 0
    if file.suffix == ".npy":
        dtype = RowIds(vertices=vertices[:0], own=user_ids).array(0, 0).dtype
        with whole_file(file, wait=False) as stream, whole_file(ids_file(file)) as ids:
            write_header(stream, np.dtype(np.float32), (len(vertices), k))
            write_header(ids, dtype, (len(vertices), k))
            for partners, scores in chunks:
                _append(stream, scores)
                flat = RowIds(vertices=partners.reshape(-1), own=user_ids)
                _append(ids, flat.array(0, partners.size))
        return
    with _open_parquet(file) as write:
        for partners, scores in chunks:
            sources = np.repeat(vertices[first : first + len(partners)], k)
            targets = partners.reshape(-1)
            write(_ids(sources, user_ids), _ids(targets, user_ids), scores.reshape(-1))
            first += len(partners)


def _ids(vertices: IntArray, user_ids: pyarrow.Array | None) -> Any:
    return RowIds(vertices=vertices, own=user_ids).slice(0, len(vertices))


def _append(stream: IO[bytes], array: Any) -> None:
    stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@contextmanager
def _open_parquet(file: Path) -> Iterator[Any]:
    """Yield a function that appends rows of sources, targets and scores."""
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
