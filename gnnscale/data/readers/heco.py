"""HeCo: ACM, papers with their authors and subjects."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, ConfigError, Float32Array, Int64Array
from gnnscale.core.artifact.files import file_bytes
from gnnscale.core.artifact.npy import map_npy
from gnnscale.data import validation
from gnnscale.data.formats import sparse
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.formats.text import csv_columns
from gnnscale.data.typed_dataset import TypedDataset
from gnnscale.graph import Graph

#: Letters of vertex types in names of files, the labeled type first.
_TYPES = {"p": "paper", "a": "author", "s": "subject"}
#: Numbers of training vertices of each class that have a split.
_LABELS_PER_CLASS = (20, 40, 60)


@dataclass(frozen=True, kw_only=True)
class Heco(TypedDataset):
    """Folder of ACM, as Wang et al., "HeCo" (2021), publish it.

    ``pa.txt`` and ``ps.txt`` have an edge a line, paper first; the graph has the reverse of every
    edge too. ``p_feat.npz`` and ``a_feat.npz`` are sparse feature matrices, subjects have no
    features; ``labels.npy`` has the classes of papers.

    Attributes:
        labels_per_class: number of training papers of each class in the published split, one of 20,
            40 and 60, as far as the folder has its files.
    """

    name: str = "acm"
    labels_per_class: int = 20

    _layout: ClassVar[str] = "heco"
    _raw_form: ClassVar[str] = (
        "the folder with pa.txt, ps.txt, p_feat.npz, a_feat.npz, labels.npy and "
        "{train,val,test}_{20,40,60}.npy"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels_per_class not in _LABELS_PER_CLASS:
            raise ConfigError(
                f"dataset.labels_per_class={self.labels_per_class}: expected one of "
                f"{', '.join(map(str, _LABELS_PER_CLASS))}"
            )

    def raw_files(self) -> list[Path]:
        """Return the files of edges, features and labels, and those of the published split."""
        names = ["pa.txt", "ps.txt", "p_feat.npz", "a_feat.npz", "labels.npy"]
        return [*map(self.raw_file, names), *self._split_files().values()]

    def _split_files(self) -> dict[str, Path]:
        if self.split != "published":
            return {}
        parts = {"train": "train", "valid": "val", "test": "test"}
        return {
            part: self.raw_file(f"{stem}_{self.labels_per_class}.npy")
            for part, stem in parts.items()
        }

    def read_graph(self) -> Graph:
        """Return the graph of papers, authors and subjects, with edges in both directions."""
        # These import torch.
        from gnnscale.data.split_input import SplitInput
        from gnnscale.data.typed_arrays import from_typed_arrays

        features: dict[str, Float32Array | None] = {
            "paper": self._features("p"),
            "author": self._features("a"),
            "subject": None,
        }
        edges: dict[tuple[str, str, str], tuple[Array, Array]] = {}
        for letter in ("a", "s"):
            papers, ends = self._edges(letter)
            edges["paper", "to", _TYPES[letter]] = papers, ends
            edges[_TYPES[letter], "to", "paper"] = ends, papers
        subjects = edges["subject", "to", "paper"][0]
        files = self._split_files()
        split = None
        if files:
            split = SplitInput(
                parts=tuple(map_npy(file, axes=1, kinds="iu") for file in files.values()),
                names=tuple(map(str, files.values())),
            )
        return from_typed_arrays(
            features,
            edges,
            ("paper", map_npy(self.raw_file("labels.npy"), axes=1, kinds="iuf")),
            num_vertices={"subject": int(subjects.max()) + 1},
            split=split,
            metric="accuracy",
            name=str(self.raw_path()),  # in errors
            advises=self._advises,
        )

    def _features(self, letter: str) -> Float32Array:
        with NpzReader(self.raw_file(f"{letter}_feat.npz")) as npz:
            rows: Float32Array = sparse.read_features(npz).astype(np.float32).toarray()
        return rows

    def _edges(self, letter: str) -> tuple[Int64Array, Int64Array]:
        """Return papers and the other ends of the edges to the type of ``letter``."""
        file = self.raw_file(f"p{letter}.txt")
        blocks = csv_columns(file, ["int64", "int64"], source=file, delimiter=" ")
        papers, ends = (np.concatenate(column) for column in zip(*blocks, strict=True))
        validation.check_num_vertices(int(ends.max()) + 1, file_bytes(file), file)
        return papers, ends
