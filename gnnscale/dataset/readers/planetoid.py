"""Planetoid: Cora, CiteSeer and PubMed with the split of Yang et al. (2016)."""

from __future__ import annotations

import pickle
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gnnscale.dataset.base import Dataset
from gnnscale.dataset.formats.sparse import dense_rows, holds_bytes
from gnnscale.dataset.formats.text import csv_table
from gnnscale.dataset.storage.download import Published, RemoteFile
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph import GraphError

__all__ = ["Planetoid"]

_ADDRESS = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
_SHA256 = {
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
}
_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
_NUM_VALID = 500
_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class Planetoid(Dataset):
    """Files ``ind.<name>.{x,y,tx,ty,allx,ally,graph,test.index}``, pickled by Python 2.

    Vertices that CiteSeer's test range skips have no features and no label.
    """

    def published(self) -> Published:
        """Return the authors' files."""
        names = [f"ind.{self.name}.{part}" for part in _PARTS]
        files = [RemoteFile(url=f"{_ADDRESS}/{name}", sha256=_SHA256.get(name)) for name in names]
        return Published(name=f"planetoid-{self.name}", licence="MIT", files=tuple(files))

    def read(self, writer: StoreWriter) -> None:
        """Push the graph; training vertices come first in the files, test vertices last."""
        index_file = self._file("test.index")
        test = csv_table(index_file, ["int64"], source=index_file)[:, 0]
        y, ally, ty = (self._load(part, np.ndarray) for part in ("y", "ally", "ty"))
        allx, tx = self._matrix("allx"), self._matrix("tx")
        num_known, num_tested = allx.shape[0], len(test)
        if not (len(ally) == num_known and len(ty) == tx.shape[0] == num_tested > 0):
            raise GraphError(
                f"{index_file}: {num_tested} test vertices, {tx.shape[0]} feature rows, "
                f"{len(ty)} labels; {num_known} other feature rows, {len(ally)} labels"
            )
        num_vertices = max(num_known, int(test.max()) + 1)
        writer.set_num_vertices(num_vertices, source=index_file)
        self._add_edges(writer)

        order = np.concatenate([np.arange(num_known), test])
        rows = scipy.sparse.vstack([allx, tx]).tocoo()
        features = scipy.sparse.csr_matrix(
            (rows.data, (order[rows.row], rows.col)), shape=(num_vertices, rows.shape[1])
        )
        writer.write_features(
            dense_rows(features),
            num_features=features.shape[1],
            dtype="uint8" if holds_bytes(features.data) else "float32",
            source=self._file("allx"),
        )
        one_hot = np.concatenate([ally, ty])
        labels = np.full(num_vertices, -1, np.int64)
        labels[order] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
        writer.set_labels(labels, num_classes=one_hot.shape[1], source=self._file("ally"))
        train, valid = np.split(np.arange(len(y) + _NUM_VALID), [len(y)])
        writer.set_split(train, valid, test, source=index_file)

    def _add_edges(self, writer: StoreWriter) -> None:
        file = self._file("graph")
        adjacency = self._load("graph", dict)
        try:
            degrees = [len(ids) for ids in adjacency.values()]
            src = np.repeat(np.array(list(adjacency)), degrees)
            dst = np.array([id for ids in adjacency.values() for id in ids])
        except (TypeError, ValueError) as error:
            raise GraphError(f"{file}: not lists of neighbours ({error})") from None
        writer.add_edges(src, dst, source=file)

    def _file(self, part: str) -> Path:
        return self.raw_file(f"ind.{self.name}.{part}")

    def _load(self, part: str, kind: type[Any]) -> Any:
        file = self._file(part)
        value: Any = _unpickle(file)
        if not isinstance(value, kind) or getattr(value, "dtype", _BYTE).hasobject:
            raise GraphError(f"{file}: holds a {type(value).__name__}, not a {kind.__name__}")
        return value

    def _matrix(self, part: str) -> scipy.sparse.csr_matrix:
        state = self._load(part, _CsrState).__dict__
        try:
            entries = (state["data"], state["indices"], state["indptr"])
            matrix = scipy.sparse.csr_matrix(entries, shape=state["_shape"])
            matrix.check_format(full_check=True)
        except (KeyError, TypeError, ValueError) as error:
            raise GraphError(f"{self._file(part)}: not a sparse matrix ({error})") from None
        return matrix


class _CsrState:
    """Stands in for scipy's matrix while unpickling, so that its fields can be checked first."""


def _reconstruct(kind: type, shape: tuple[int, ...], code: bytes | str) -> NDArray[Any]:
    """Make the empty array that unpickling then fills, as NumPy's function of that name does."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError(f"array of {kind}")
    return np.empty(0, np.int8)


#: All that the published files name. Nothing here runs code that a file brings.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _CsrState,
    ("scipy.sparse._csr", "csr_matrix"): _CsrState,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _Unpickler(pickle.Unpickler):
    """Admits the few names that the published files use."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"refused: it names {module}.{name}") from None


def _unpickle(file: Path) -> Any:
    with file.open("rb") as stream:
        try:
            return _Unpickler(stream, encoding="latin1").load()
        except Exception as error:  # a damaged pickle can raise anything
            raise GraphError(f"{file}: not a Planetoid file ({error})") from None
