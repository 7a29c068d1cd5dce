"""MAG240M of OGB-LSC (Hu et al., 2021) as a homogeneous graph: papers that cite papers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gnnscale.artifact.arrays import map_npy, row_slices
from gnnscale.artifact.files import file_bytes, total_bytes
from gnnscale.dataset.base import Dataset
from gnnscale.dataset.checks import (
    check_ids,
    check_num_features,
    check_num_vertices,
    class_labels,
    quoted,
)
from gnnscale.dataset.formats.archive import Archive
from gnnscale.dataset.formats.pickled import array_of, parse_pickle
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph import GraphError

__all__ = ["Mag240m"]

_NUM_CLASSES = 153
_PARTS = ("train", "valid", "test-dev")
#: torch.save does not compress, whence little is allowed beyond a member's own size.
_SPLIT_ALLOWANCE, _SPLIT_RATIO = 8 << 20, 4


@dataclass(frozen=True, kw_only=True)
class Mag240m(Dataset):
    """A folder with ``processed/`` and ``split_dict.pt``, as the published archive unpacks.

    Read are ``paper___cites___paper/edge_index.npy``, ``paper/node_feat.npy`` (float16) and
    ``paper/node_label.npy``. The test vertices are the publisher's test-dev, whose labels are
    hidden: they are -1 here, so that only validation says how good a model is.
    """

    def raw_files(self) -> list[Path]:
        """Return features, labels, edges and split."""
        root = self._root()
        papers = root / "processed" / "paper"
        edges = root / "processed" / "paper___cites___paper" / "edge_index.npy"
        files = [papers / "node_feat.npy", papers / "node_label.npy", edges, root / "split_dict.pt"]
        for file in files:
            file_bytes(file)
        return files

    def read(self, writer: StoreWriter) -> None:
        """Push the graph from mapped files, slice by slice."""
        files = self.raw_files()
        feature_file, label_file, edge_file, split_file = files
        features = map_npy(feature_file, axes=2, kinds="f")
        check_num_features(features.shape[1], feature_file)
        check_num_vertices(len(features), total_bytes(files), feature_file)
        published = map_npy(label_file, axes=1, kinds="iuf")
        if len(published) != len(features):
            raise GraphError(f"{label_file}: {len(published)} labels for {len(features)} vertices")
        writer.set_num_vertices(len(features), source=feature_file)
        labels = class_labels(published, label_file)
        writer.set_labels(labels, num_classes=_NUM_CLASSES, source=label_file)
        edges = map_npy(edge_file, axes=2, kinds="iu")
        if len(edges) != 2:
            raise GraphError(f"{edge_file}: {list(edges.shape)}, allowed is [2, num_edges]")
        for part in row_slices(edges.shape[1], 16):
            writer.add_edges(edges[0, part], edges[1, part], source=edge_file)
        writer.write_features(
            (features[part] for part in row_slices(len(features), features[:1].nbytes)),
            num_features=features.shape[1],
            dtype="float16" if features.dtype.itemsize == 2 else "float32",
            source=feature_file,
        )
        writer.set_split(*_read_split(split_file, len(features)), source=split_file)

    def _root(self) -> Path:
        path = self.raw_path()
        for folder in (path, path / "mag240m_kddcup2021"):
            if (folder / "processed").is_dir():
                return folder
        raise GraphError(f"{path}: has no folder processed/")


def _read_split(path: Path, num_vertices: int) -> list[NDArray[Any]]:
    """Read what torch.save made of a dictionary of arrays."""
    with Archive(path) as archive:
        names = [name for name in archive.names if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise GraphError(f"{path}: {len(names)} members data.pkl, torch.save writes 1")
        data = archive.read(
            names[0],
            allowance=_SPLIT_ALLOWANCE,
            ratio=_SPLIT_RATIO,
            advice="torch.save does not compress",
        )
    source = f"{path}/{names[0]}"
    split = parse_pickle(data, source=source)
    if not isinstance(split, dict):
        raise GraphError(f"{source}: holds {quoted(split)}, not a split of {', '.join(_PARTS)}")
    parts = []
    for part in _PARTS:
        if part not in split:
            raise GraphError(f"{source}: not a split of {', '.join(_PARTS)}: it has no {part!r}")
        ids = array_of(split[part], axes=1, kinds="iu", source=f"{source}: {part}")
        check_ids(ids, num_vertices, f"{source}: {part}")
        parts.append(ids)
    return parts
