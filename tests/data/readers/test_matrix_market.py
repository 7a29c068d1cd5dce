"""Matrix Market files as SciPy writes them, and headers that say something else."""

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.data import MatrixMarket


def matrix_market(tmp_path: Path, text: str, **options: Any) -> MatrixMarket:
    file = tmp_path / "m.mtx"
    file.write_text(text)
    return MatrixMarket(name="m", raw=str(file), **options)


def dense(graph: Any) -> Any:
    """Adjacency matrix ``[from, to]`` of weights."""
    found = np.zeros((graph.num_vertices,) * 2)
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    weights = graph.edge_weights
    found[graph.indices, targets] = 1 if weights is None else weights
    return found


@settings(max_examples=40)
@given(size=st.integers(1, 8), seed=st.integers(0, 99), data=st.data())
def test_what_scipy_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, size: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 3, (size, size)) * data.draw(st.sampled_from([1, 0.25]))
    symmetry = data.draw(st.sampled_from(["general", "symmetric", "skew-symmetric"]))
    if symmetry == "symmetric":
        matrix = np.maximum(matrix, matrix.T)
    elif symmetry == "skew-symmetric":
        matrix = matrix - matrix.T
    if not matrix.any():
        matrix = 1 - np.eye(size) if symmetry == "general" else matrix
    field = data.draw(st.sampled_from([None, "pattern"]))
    out = io.BytesIO()
    scipy.io.mmwrite(out, sp.coo_array(matrix), symmetry=symmetry, field=field, comment=" made\n")
    file = tmp_path_factory.mktemp("m") / data.draw(st.sampled_from(["m.mtx", "m.mtx.gz"]))
    text = out.getvalue()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    weighted = symmetry != "skew-symmetric"
    dataset = MatrixMarket(name="m", raw=str(file), weighted=weighted)
    if not matrix.any():
        with one_line("with 0", error=GraphError):
            dataset.open()
        return
    found = dense(dataset.open())
    assert np.array_equal(found, matrix if weighted and field is None else matrix != 0)


BANNER = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 2\n", ("line 1 is '1 2'", "dataset=edge_list")),
        *(
            (f"%%MatrixMarket {words}\n1 1 1\n", ("line 1 is", "expected '%%MatrixMarket matrix"))
            for words in (
                *("matrix array real general", "vector coordinate real general"),
                *("matrix coordinate", "matrix coordinate complex general"),
                "matrix coordinate real hermitian",
            )
        ),
        (BANNER, ("line 1 is", "expected the numbers of")),
        (BANNER + "% c\n2 2\n1 1 1\n", ("line 3 is '2 2'",)),
        (BANNER + "2 2 -1\n", ("line 2 is '2 2 -1'",)),
        (BANNER + f"{10**30} {10**30} 1\n1 1 1\n", ("line 2 is",)),
        (BANNER + f"{10**15} {10**15} 1\n1 1 1\n", ("vertices in files of",)),
        (BANNER + "2 3 1\n1 1 1\n", ("expected a square matrix", "2 x 3")),
        (BANNER + "2 2 0\n", ("with 0",)),
        (BANNER + "2 2 2\n1 1 1\n", ("1 entries, its header says 2",)),
        (BANNER + "2 2 1\n1 1 1\n1 2 1\n", ("2 entries, its header says 1",)),
        (BANNER + "2 2 1\n0 1 1\n", ("(ids less 1): vertex id -1 is negative",)),
        (BANNER + "2 2 1\n1 3 1\n", ("(ids less 1): vertex id 2 is out of range",)),
        (BANNER + "2 2 1\n1 2\n", ("line 3",)),
        (BANNER + "2 2 2\n1 2 1\n1 x 1\n", ("line 4 is '1 x 1'",)),
        (BANNER + "2 2 1\n1 2 -3.5\n", ("has negative values", "dataset.weighted=false")),
        (BANNER + "2 2 1\n1 2 nan\n", ("edge 0: expected a weight", "got nan")),
        (
            "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 3\n",
            ("has negative values", "dataset.weighted=false"),
        ),
        ("", ("empty",)),
    ],
)
def test_one_line_says_what_is_refused(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    with one_line(*words, error=GraphError, begins=str(tmp_path / "m.mtx")):
        matrix_market(tmp_path, text).open()


def test_rows_of_features_match_the_matrix(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(3, dtype=np.float32))
    options = {"features_file": str(tmp_path / "x.npy")}
    graph = matrix_market(tmp_path, BANNER + "3 3 1\n1 3 2.5\n", **options).open()
    assert dense(graph).tolist() == [[0, 0, 2.5], [0, 0, 0], [0, 0, 0]]
    assert graph.num_features == 3
    with one_line("a matrix of 2 rows, for 3 rows of features", error=GraphError):
        matrix_market(tmp_path, BANNER + "2 2 1\n1 2 1\n", **options).open()
