from pathlib import Path

import numpy as np
import pytest
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.data import Snap


@pytest.mark.parametrize("comments", ["", "# nodes 4\n", "% sym unweighted\n% 4 4 4\n"])
def test_comments_of_snap_and_of_konect_are_skipped(tmp_path: Path, comments: str) -> None:
    file = tmp_path / "out.txt"
    file.write_text(f"{comments}1 2\n2 3\n3 1\n7 1\n")
    graph = Snap(name="out", raw=str(file), num_features=4, num_classes=2).open()
    assert np.diff(graph.indptr).tolist() == [2, 1, 1, 0]
    assert graph.indices.tolist() == [2, 3, 0, 1]


def test_a_matrix_market_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "m.mtx"
    file.write_text("%%MatrixMarket matrix coordinate pattern general\n% made\n3 3 2\n1 2\n2 3\n")
    with one_line("Matrix Market", "dataset=matrix_market", error=GraphError, begins=str(file)):
        Snap(name="m", raw=str(file)).open()
