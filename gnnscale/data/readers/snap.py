"""SNAP edge lists (Leskovec & Krevl, 2014): text with one edge per line, ids with gaps."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import GraphError
from gnnscale.data.formats.edge_text import EdgeText
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.data.structure_only import Structure

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Snap(Structure):
    """File ``<name>.txt`` or ``<name>.txt.gz``; lines that begin with # or % are comments.

    Blanks and tabs, or a comma, separate the ids. Vertex ``i`` is the ``i``-th smallest id. The
    file is read twice, first for the ids.
    """

    _raw_form: ClassVar[str] = (
        "the file <name>.txt or <name>.txt.gz, as https://snap.stanford.edu/data has it, or the "
        "folder"
    )

    def read_edges(self, writer: StoreWriter) -> None:
        """Push the number of vertices, then the edges; a line ``a b`` is an edge from a to b."""
        (file,) = self.raw_files()
        text = EdgeText.open(file)
        if len(text.first) > 2:
            _LOG.info("%s: columns after the first two are not read", file)
        ids = text.ids()
        writer.set_num_vertices(len(ids), source=file)
        # Without gaps, ids are vertices.
        contiguous = ids[-1] == len(ids) - 1
        for ends in text.columns():
            src, dst = ends if contiguous else (np.searchsorted(ids, end) for end in ends)
            writer.add_edges(src, dst, source=file)

    def raw_files(self) -> list[Path]:
        """Return the path of the edge list."""
        path = self.raw_path()
        if path.is_file():
            return [path]
        for file in (path / f"{self.name}.txt", path / f"{self.name}.txt.gz"):
            if file.exists():
                return [file]
        raise GraphError(f"{path}: has neither {self.name}.txt nor {self.name}.txt.gz")
