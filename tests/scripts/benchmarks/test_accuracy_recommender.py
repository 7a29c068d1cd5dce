import csv
from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks.cases.accuracy_recommender import run

pytestmark = pytest.mark.integration


def test_films_are_recommended_better_than_by_popularity(test_data: Path, tmp_path: Path) -> None:
    """Two epochs on all of MovieLens."""
    quick = ["epochs=2", "task.num_negatives=16", "num_threads=1"]
    figures = run(Namespace(keep=tmp_path, overrides=quick, seeds=1, data=test_data))
    assert figures["missed"] == []
    assert 0.08 < figures["popularity"][0] < 0.16
    assert 1.1 * figures["popularity"][0] < figures["gnnscale"][0] < 0.5
    with (tmp_path / "vertices.csv").open(newline="") as file:
        kinds = [row["kind"] for row in csv.DictReader(file)]
    assert (kinds.count("user"), kinds.count("movie")) == (671, 9125)
