"""GraphSAINT (Zeng et al., 2020): Reddit, Yelp, Amazon, Flickr and PPI in the authors' files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, UInt8Array
from gnnscale.core.artifact import files, map_npy, read_file, total_bytes
from gnnscale.data import base, validation
from gnnscale.data.formats import sparse
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.graph import store_format

_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")


@dataclass(frozen=True, kw_only=True)
class GraphSaint(base.Dataset):
    """Folder with ``adj_full.npz``, ``feats.npy``, ``class_map.json`` and ``role.json``.

    Classes that are lists of zeros and ones are multi-label with the metric micro-F1.
    """

    _raw_form: ClassVar[str] = (
        f"the folder with {', '.join(_FILES)}, from https://github.com/GraphSAINT/GraphSAINT"
    )

    def raw_files(self) -> list[Path]:
        """Return the paths of the four files."""
        if not self.raw_path().is_dir():
            raise GraphError(f"{self.raw_path()}: not a folder with {', '.join(_FILES)}")
        return [self.raw_file(name) for name in _FILES]

    def read(self, writer: StoreWriter) -> None:
        """Push edges, features, labels and split into ``writer``.

        Row ``i`` of the adjacency matrix lists the in-neighbors of vertex ``i``.
        """
        files = self.raw_files()
        adjacency, feature_file, class_file, role_file = files
        with NpzReader(adjacency) as npz:
            indptr, indices = sparse.read_adjacency(npz)
        num_vertices = len(indptr) - 1
        validation.check_num_vertices(num_vertices, total_bytes(files), adjacency)
        writer.set_num_vertices(num_vertices, source=adjacency)
        for dst, src in sparse.csr_edges(indptr, indices):
            writer.add_edges(src, dst, source=adjacency)
        features = map_npy(feature_file, axes=2, kinds="biuf")
        writer.write_matrix(features, source=feature_file)
        labels = _read_classes(class_file, num_vertices)
        metric = "micro_f1" if labels.ndim == 2 else "accuracy"
        writer.set_labels(labels, metric=metric, source=class_file)
        writer.set_split(*_read_role(role_file), source=role_file)


def _read_role(path: Path) -> list[Int64Array]:
    """Return the ids of the training, validation and test vertices in a file ``role.json``."""
    role = files.parse_json(read_file(path), source=path)
    missing = [part for part in ("tr", "va", "te") if part not in role]
    if missing:
        raise GraphError(f"{path}: has no list {missing[0]!r}")
    return [
        validation.whole_numbers(role[part], path, f"ids of {part!r}")
        for part in ("tr", "va", "te")
    ]


def _read_classes(path: Path, num_vertices: int) -> Array:
    classes = files.parse_json(read_file(path), source=path)
    ids = validation.vertex_keys(classes, source=path)
    if not np.array_equal(np.sort(ids), np.arange(num_vertices)):
        raise GraphError(f"{path}: ids must be 0 to {num_vertices - 1}, each once")
    rows = list(classes.values())
    values: Array
    if isinstance(rows[0], list):
        values = _multi_label(classes, path)
    else:
        values = validation.whole_numbers(rows, path, "classes")
    labels = np.empty_like(values)
    labels[ids] = values
    return labels


def _multi_label(classes: dict[str, Any], path: Path) -> UInt8Array:
    """Return the lists of zeros and ones in ``classes`` as rows, in their order.

    GraphError unless their lengths are equal.
    """
    width = len(next(iter(classes.values())))
    if not 1 <= width <= store_format.MAX_FEATURES:
        raise GraphError(f"{path}: {width} classes, allowed are 1 to {store_format.MAX_FEATURES}")
    rows = bytearray()
    for vertex, row in classes.items():
        if not isinstance(row, list) or len(row) != width:
            raise GraphError(
                f"{path}: class of vertex {vertex}: expected a list of {width} zeros and ones as "
                f"for the first vertex, got {validation.quoted(row)}"
            )
        wrong = [value for value in row if type(value) not in (int, float) or value not in (0, 1)]
        if wrong:
            raise GraphError(
                f"{path}: class of vertex {vertex}: expected 0 or 1, got "
                f"{validation.quoted(wrong[0])}"
            )
        rows += bytes(map(int, row))
    return np.frombuffer(rows, np.uint8).reshape(-1, width)
