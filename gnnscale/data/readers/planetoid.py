"""Planetoid: Cora, CiteSeer and PubMed with the split of Yang et al. (2016)."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array
from gnnscale.core.artifact.files import file_bytes
from gnnscale.core.sorted_sets import distinct
from gnnscale.data import base, validation
from gnnscale.data.formats import sparse, text
from gnnscale.data.formats.safe_pickle import array_of, load_pickle, sparse_fields
from gnnscale.data.storage import remote
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.graph.store_format import MAX_FEATURES

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


@dataclass(frozen=True, kw_only=True)
class Planetoid(base.Dataset):
    """Files ``ind.<name>.{x,y,tx,ty,allx,ally,graph,test.index}``, pickled by Python 2.

    Vertices that the test range of CiteSeer skips have features of 0 and no label.
    """

    _layout: ClassVar[str] = "planetoid"
    _raw_form: ClassVar[str] = f"the folder with ind.<name>.{{{','.join(_PARTS)}}}"
    #: URL of the authors' files.
    address = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"

    def published(self) -> remote.Published:
        """Return the authors' files to download."""
        names = [f"ind.{self.name}.{part}" for part in _PARTS]
        files = [
            remote.RemoteFile(url=f"{self.address}/{name}", sha256=_SHA256.get(name))
            for name in names
        ]
        return remote.Published(name=f"planetoid-{self.name}", license="MIT", files=tuple(files))

    def raw_files(self) -> list[Path]:
        """Return all files but ``x``, which repeats the start of ``allx``."""
        return [self._file(part) for part in _PARTS if part != "x"]

    def read(self, writer: StoreWriter) -> None:
        """Push the graph and its split into ``writer``.

        Vertices of file ``y`` train, the next 500 validate, those in file ``test.index`` test.
        """
        import scipy.sparse  # takes a while, and a run whose store exists needs none

        allx, tx = self._matrix("allx"), self._matrix("tx")
        ally, ty = self._one_hot("ally"), self._one_hot("ty")
        num_train = len(self._one_hot("y"))
        test = self._read_test(allx, tx, ally, ty)
        num_known = allx.shape[0]
        num_vertices = int(test.max()) + 1
        writer.set_num_vertices(num_vertices, source=self._file("test.index"))
        self._add_edges(writer)

        order = np.concatenate([np.arange(num_known), test])
        rows = scipy.sparse.vstack([allx, tx]).tocoo()
        features = scipy.sparse.csr_matrix(
            (rows.data, (order[rows.row], rows.col)), shape=(num_vertices, rows.shape[1])
        )
        writer.write_matrix(features, source=self._file("allx"))
        one_hot = np.concatenate([ally, ty])
        labels = np.full(num_vertices, -1, np.int64)
        labels[order] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
        writer.set_labels(labels, num_classes=one_hot.shape[1], source=self._file("ally"))
        train, valid = np.split(np.arange(num_train + _NUM_VALID), [num_train])
        writer.set_split(train, valid, test, source=self._file("test.index"))

    def _read_test(
        self, allx: sparse.CsrMatrix, tx: sparse.CsrMatrix, ally: Array, ty: Array
    ) -> Int64Array:
        """Return the ids of test vertices in ``test.index``, in the order of its lines.

        GraphError unless they are distinct, follow those of ``allx``, and match ``tx`` and ``ty``.
        """
        file = self._file("test.index")
        num_known, num_tested = allx.shape[0], tx.shape[0]
        test: Int64Array = text.csv_table(file, ["int64"], source=file)[:, 0]
        if not (len(ally) == num_known and len(ty) == num_tested == len(test) > 0):
            raise GraphError(
                f"{file}: {len(test)} test vertices, {num_tested} feature rows, "
                f"{len(ty)} labels; {num_known} other feature rows, {len(ally)} labels"
            )
        if allx.shape[1] != tx.shape[1] or ally.shape[1] != ty.shape[1]:
            raise GraphError(
                f"{file}: {allx.shape[1]} and {tx.shape[1]} features, "
                f"{ally.shape[1]} and {ty.shape[1]} classes in the files of known and test vertices"
            )
        if len(distinct(test)) != num_tested:
            raise GraphError(f"{file}: a test vertex is named twice")
        # The test range of CiteSeer skips 15 ids of 1,015.
        low, high = int(test.min()), int(test.max())
        limit = 2 * (num_known + num_tested)
        if not num_known <= low <= high < limit:
            raise GraphError(
                f"{file}: test vertices are {low} to {high}, allowed are {num_known}, the number "
                f"of other vertices, to {limit - 1}, twice the number of all"
            )
        return test

    def _add_edges(self, writer: StoreWriter) -> None:
        file = self._file("graph")
        adjacency = load_pickle(file)
        if not isinstance(adjacency, dict):
            raise GraphError(f"{file}: holds {validation.quoted(adjacency)}, not a dict")
        for neighbors in adjacency.values():
            if not isinstance(neighbors, list):
                raise GraphError(
                    f"{file}: holds {validation.quoted(neighbors)}, not lists of neighbors"
                )
        degrees = list(map(len, adjacency.values()))
        # A pickle can use one list many times.
        if sum(degrees) > file_bytes(file):
            raise GraphError(f"{file}: lists of {sum(degrees)} neighbors, more than its bytes")
        src = np.repeat(validation.whole_numbers(list(adjacency), file, "vertex ids"), degrees)
        neighbors = list(chain.from_iterable(adjacency.values()))
        writer.add_edges(src, validation.whole_numbers(neighbors, file, "vertex ids"), source=file)

    def _file(self, part: str) -> Path:
        return self.raw_file(f"ind.{self.name}.{part}")

    def _one_hot(self, part: str) -> Array:
        file = self._file(part)
        rows = array_of(load_pickle(file), axes=2, kinds="biuf", source=file)
        if not 1 <= rows.shape[1] <= MAX_FEATURES:
            raise GraphError(f"{file}: {rows.shape[1]} classes, allowed are 1 to {MAX_FEATURES}")
        if not ((rows == 0) | (rows == 1)).all():
            raise GraphError(f"{file}: classes must be rows of zeros and ones")
        return rows

    def _matrix(self, part: str) -> sparse.CsrMatrix:
        file = self._file(part)
        fields = sparse_fields(load_pickle(file), source=file)
        data, indices, indptr = (
            array_of(fields.get(name), axes=1, kinds=kinds, source=f"{file}: {name}")
            for name, kinds in (("data", "biuf"), ("indices", "iu"), ("indptr", "iu"))
        )
        shape = fields.get("_shape")
        if not (isinstance(shape, tuple) and len(shape) == 2 and shape[0] == len(indptr) - 1):
            raise GraphError(f"{file}: not a sparse matrix, its shape and offsets differ")
        return sparse.sparse_matrix(
            data, indices, indptr, num_columns=shape[1], num_bytes=file_bytes(file), source=file
        )
