"""Signs of ratings beside PyG, on a small file of ratings in the form of Bitcoin OTC's."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.cases import accuracy_times as script


@pytest.fixture
def data(tmp_path: Path, cache: Path) -> Path:
    """Write 600 ratings: users with even numbers get good ones."""
    generator = np.random.default_rng(0)
    source, target = generator.integers(0, 40, (2, 600))
    ratings = np.where(target % 2 == 0, 5, -5)
    times = generator.permutation(600) * 10
    folder = tmp_path / "relational" / "bitcoin_otc"
    folder.mkdir(parents=True)
    lines = zip(source, target, ratings, times, strict=True)
    text = "".join(f"{a},{b},{c},{d}\n" for a, b, c, d in lines)
    (folder / "soc-sign-bitcoinotc.csv").write_text("source,target,rating,time\n" + text)
    return tmp_path


def test_tables_are_in_the_order_of_time(data: Path, tmp_path: Path) -> None:
    raw = data / "relational" / "bitcoin_otc" / "soc-sign-bitcoinotc.csv"
    options = script.write_tables(raw, tmp_path)
    rows = np.loadtxt(tmp_path / "edges.csv", delimiter=",", skiprows=1)
    assert (np.diff(rows[:, 4]) > 0).all()
    assert set(rows[:, 2]) == {-0.5, 0.5}
    np.testing.assert_array_equal(rows[:, 3], rows[:, 2] > 0)
    bounds = [option.partition("=")[2].strip("'") for option in options[-2:]]
    assert bounds == ["4200", "5100"]  # 70 % and 85 % of 600 ratings, one each 10 s


@pytest.mark.integration
def test_both_sides_learn_who_gets_good_ratings(data: Path) -> None:
    pytest.importorskip("torch_geometric")
    more = ["epochs=6", "model.hidden=16", "batch_size=64", "optimizer.lr=0.01", "model.norm=layer"]
    found = script.run(Namespace(seeds=1, set=more, threads=1, data=data))
    points = found["test_auroc_points"]
    assert set(points) == {"gnnscale", "pyg"}
    assert all(value > 80 for (value,) in points.values())
