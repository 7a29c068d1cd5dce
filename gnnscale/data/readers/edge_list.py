"""Edge lists of a user: an edge per line, as SNAP, KONECT and networkx write it."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import GraphError, brief, pyarrow
from gnnscale.data.formats.edge_text import EdgeText
from gnnscale.data.readers.edge_file import EdgeFormat
from gnnscale.data.storage import StoreWriter
from gnnscale.graph.store_format import write_ids

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EdgeList(EdgeFormat):
    """Text file, or a .gz, with an edge per line; lines that begin with # or % are comments.

    Blanks and tabs, or a comma, separate source, destination and, if ``weighted``, weight. With
    features or labels, ids are their rows, from 0; ids with gaps or another start must be as many
    as the rows, and row ``i`` is the ``i``-th smallest id. The file is read twice.
    """

    _raw_form: ClassVar[str] = "the text file of edges"

    def read_edges(self, file: Path, num_rows: int | None, writer: StoreWriter) -> None:
        """Push the number of vertices, then the edges; a line ``a b`` is an edge from a to b.

        Ids that are not 0, 1, 2 and so on are stored, for predictions.
        """
        text = EdgeText.open(file)
        types = self._types(text)
        ids = text.ids()
        is_row = ids[-1] < (len(ids) if num_rows is None else num_rows)
        if not is_row and num_rows not in (None, len(ids)):
            raise GraphError(
                f"{file}: {len(ids)} different ids, {ids[0]} to {ids[-1]}, for {num_rows} rows of "
                "features or labels; expected the numbers of the rows, from 0, or as many ids as "
                "rows"
            )
        num_vertices = num_rows or len(ids)
        writer.set_num_vertices(num_vertices, source=file)
        if not is_row:
            writer.notes["ids"] = write_ids(writer.path, pyarrow.array(ids))
            _LOG.info("%s: vertex i has the i-th smallest id, %d to %d", file, ids[0], ids[-1])
        elif ids[0] > 0 and num_rows is not None:
            _LOG.warning(
                "%s: ids count as numbers of rows from 0, and the smallest is %d", file, ids[0]
            )
        for src, dst, *weights in text.columns(types):
            if not is_row:
                src, dst = (np.searchsorted(ids, end) for end in (src, dst))
            writer.add_edges(src, dst, weights=weights[0] if weights else None, source=file)

    def _types(self, text: EdgeText) -> tuple[str, ...]:
        """Return the types of the columns to read; GraphError: there are no weights to read."""
        further = text.first[2:]
        if not self.weighted:
            if further:
                _LOG.info(
                    "%s: columns after the first two are not read; dataset.weighted=true reads the "
                    "third as weights",
                    text.file,
                )
            return ("int64", "int64")
        if not further or further[0].startswith("{"):
            got = f"'{brief(further[0])}'" if further else "two columns"
            raise GraphError(
                f"{text.file}: expected weights in the third column (dataset.weighted=true), got "
                f"{got}; networkx.write_weighted_edgelist writes them"
            )
        return ("int64", "int64", "float64")
