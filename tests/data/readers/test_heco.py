"""ACM as HeCo publishes it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from one_line import one_line

from gnnscale.core import ConfigError, GraphError
from gnnscale.data import Heco, verify_store

PAPERS, AUTHORS = 6, 3
PA, PS = [(0, 1), (1, 0), (2, 2), (2, 0)], [(0, 1), (1, 0), (2, 0)]


def write(raw: Path, **files: Any) -> Path:
    """Write a tiny folder, papers in CSR and authors in COO; ``files`` replace arrays by name."""
    raw.mkdir(exist_ok=True)
    for name, edges in (("pa.txt", PA), ("ps.txt", PS)):
        (raw / name).write_text("".join(f"{paper}\t{other}\n" for paper, other in edges))
    papers = scipy.sparse.csr_matrix(np.arange(PAPERS * 2).reshape(PAPERS, 2) / 4)
    authors = scipy.sparse.coo_matrix(np.eye(AUTHORS)[::-1])
    for name, matrix in (("p_feat", papers), ("a_feat", authors)):
        scipy.sparse.save_npz(raw / f"{name}.npz", files.pop(name, matrix))
    arrays = {"labels": np.array([0.0, 1, 2, 0, 1, 2]), "train_20": [4, 0], "val_20": [1]}
    for name, values in (arrays | {"test_20": [5, 2]} | files).items():
        np.save(raw / f"{name}.npy", values)
    return raw


@pytest.fixture
def raw(tmp_path: Path, home: Path) -> Path:
    return write(tmp_path / "acm")


def test_types_edges_features_and_split(raw: Path) -> None:
    graph = Heco(raw=str(raw)).open()
    assert [(t.name, t.num_vertices) for t in graph.schema.vertex_types] == [
        ("paper", 6),
        ("author", 3),
        ("subject", 2),
    ]
    types = ["paper-to-author", "author-to-paper", "paper-to-subject", "subject-to-paper"]
    assert [str(edge_type) for edge_type in graph.schema.edge_types] == types
    in_lists = [row.tolist() for row in np.split(graph.indices, graph.indptr[1:-1])]
    # Papers: their authors 6 to 8, then subjects 9 and 10.
    assert in_lists[:6] == [[7], [10], [6], [9], [6, 8], [9]]
    assert in_lists[12:] == [[1, 2], [0], [2], [1, 2], [0]]
    papers, authors, subjects = graph.features.matrices
    np.testing.assert_array_equal(papers.rows, np.float32(np.arange(12).reshape(6, 2) / 4))
    np.testing.assert_array_equal(authors.rows, np.float32(np.eye(3)[::-1]))
    assert subjects is None
    assert graph.labels.tolist() == [0, 1, 2, 0, 1, 2, -1, -1, -1, -1, -1]
    split = (graph.train_idx.tolist(), graph.valid_idx.tolist(), graph.test_idx.tolist())
    assert (graph.metric, split) == ("accuracy", ([0, 4], [1], [2, 5]))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"labels": [0, 1]}, "2 labels|labels of paper"),
        ({"labels": [0.5, 1, 0, 1, 0, 1]}, "labels of paper"),
        ({"train_20": [6]}, r"train_20.npy.*out of range"),
        ({"val_20": [0]}, "overlapping splits"),
        ({"p_feat": scipy.sparse.csc_matrix(np.eye(6))}, "expected csr or coo"),
        ({"p_feat": scipy.sparse.csr_matrix(np.eye(2))}, "paper: .*out of range"),
    ],
)
def test_refused(raw: Path, files: Any, message: str) -> None:
    write(raw, **files)
    with pytest.raises(GraphError, match=message) as error:
        Heco(raw=str(raw)).open()
    assert str(error.value).isprintable()


def test_options_and_missing_files(raw: Path) -> None:
    with one_line("dataset.labels_per_class=30: expected one of 20, 40, 60"):
        Heco(labels_per_class=30)
    with one_line("train_60.npy: missing; dataset.raw needs the folder", error=GraphError):
        Heco(raw=str(raw), labels_per_class=60).open()
    with one_line("dataset.raw: required for acm, the folder with pa.txt"):
        Heco().open()
    graph = Heco(raw=str(raw), labels_per_class=60, split="random", train_fraction=0.3).open()
    assert len(graph.train_idx) + len(graph.valid_idx) + len(graph.test_idx) == PAPERS


def test_damaged_files_give_one_line(raw: Path, tmp_path: Path) -> None:
    """Every file cut, emptied, or with bytes replaced: a store, or an error in one line."""
    generator = np.random.default_rng(0)
    store = str(tmp_path / "store")
    Heco(raw=str(raw), store=store).prepare()
    messages = []
    for file in sorted(raw.iterdir()):
        content = file.read_bytes()
        for number in range(8):
            damaged = bytearray(content[: len(content) // 2] if number == 0 else content)
            for _ in range(number):
                damaged[generator.integers(len(damaged))] = generator.integers(256)
            file.write_bytes(damaged)
            try:
                Heco(raw=str(raw), store=store).prepare(force=True)
            except (GraphError, ConfigError) as error:
                messages.append(str(error))
        file.write_bytes(content)
    assert len(messages) > 40
    assert all(message.isprintable() and len(message) < 1000 for message in messages)


def test_published_files(test_data: Path, home: Path) -> None:
    for labels_per_class in (20, 60):
        raw = str(test_data / "relational" / "acm")
        graph = Heco(raw=raw, labels_per_class=labels_per_class).open()
        assert graph.num_vertices == 4019 + 7167 + 60
        assert graph.num_edges == 2 * (13_407 + 4_019)
        assert graph.features.widths == (1902, 1902, 0)
        sizes = (len(graph.train_idx), len(graph.valid_idx), len(graph.test_idx))
        assert sizes == (3 * labels_per_class, 1000, 1000)
        assert np.bincount(graph.labels[graph.train_idx]).tolist() == [labels_per_class] * 3
        assert graph.path is not None
        assert all(check.problem is None for check in verify_store(graph.path))
