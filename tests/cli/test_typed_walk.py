"""All commands on a graph with types of vertices and edges, from tables to predictions."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from shop_tables import KINDS, OF_SHOP, write_shop

Run = Callable[..., Any]
SMALL = ("model.hidden=16", "batch_size=64", "num_threads=1", "optimizer.lr=0.01")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables of two months."""
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder / "may", 400, 60, seed=5)
    write_shop(folder / "june", 90, 40, seed=6)
    return folder


@pytest.fixture(scope="module")
def run(shop: Path, run_lines: Run) -> Run:
    """Run a command line in the folder of the tables."""
    return lambda *arguments: run_lines([arguments], shop)[0]


@pytest.fixture(scope="module")
def trained(shop: Path, run: Run) -> Path:
    more = ("dataset.raw=may", "model=rsage", "epochs=6", "output=run", *SMALL)
    ended = run("train", *OF_SHOP, *more).succeeded()
    for words in (
        "shop: user-buys-item      2,402 edges",
        "user: joined: days since 2021-01-0",
        "kind: 3 categories",
        "1 ids that only the edges have, such as 'GUEST', are vertices of user",
    ):
        assert words in ended.stderr
    assert json.loads((shop / "run" / "summary.json").read_text())["test_metric"] > 0.9
    return shop / "run"


def rows_of(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    return rows


def accuracy(file: Path, table: Path) -> float:
    """Return the accuracy of predictions for the labeled rows of ``table``."""
    predicted = {row["id"]: row["class"] for row in rows_of(file)}
    with table.open() as stream:
        labels = {row["user_id"]: row["fan"] for row in csv.DictReader(stream) if row["fan"]}
    return sum(predicted[name] == label for name, label in labels.items()) / len(labels)


@pytest.mark.integration
def test_predictions_have_ids_and_classes(shop: Path, run: Run, trained: Path) -> None:
    run("predict", "run=run", "out=may.parquet").succeeded()
    rows = rows_of(shop / "may.parquet")
    assert [rows[0]["id"], rows[-1]["id"], len(rows)] == ["U0", "GUEST", 401]
    assert {row["class"] for row in rows} <= {*KINDS}
    assert accuracy(shop / "may.parquet", shop / "may" / "users.csv") > 0.9
    run("predict", "run=run", "out=item.parquet", "vertices={item:[I3,I1]}", "layer=-2").succeeded()
    assert [row["id"] for row in rows_of(shop / "item.parquet")] == ["I3", "I1"]
    wrong = run("predict", "run=run", "out=x.parquet", "vertices=itme")
    assert "a vertex type of shop (user, item)" in wrong.last_line
    assert wrong.last_line.endswith("did you mean 'item'?")


@pytest.mark.integration
def test_other_tables_are_read_as_in_training(shop: Path, run: Run, trained: Path) -> None:
    """Other months have other categories, first days, empty cells, columns, and no labels."""
    predict = ("predict", "run=run", "force=true", "dataset=typed_tables", "dataset.raw=june")
    told = run(*predict, "out=june.parquet").succeeded().stderr
    assert "vertices={user: users.csv, item: items.csv}" in told
    assert "as the run has it" in told
    assert accuracy(shop / "june.parquet", shop / "june" / "users.csv") > 0.9
    users = (shop / "june" / "users.csv").read_text().splitlines()
    bare = [f"{line.rsplit(',', 1)[0]},9" for line in users]  # no label, another column
    text = "\n".join(bare).replace("age,9", "age,height")
    (shop / "june" / "new.csv").write_text(text.replace("Oslo", "Bern"))
    named = "dataset.vertices={user:new.csv,item:items.csv}"
    refused = run(*predict, "out=new.parquet", named).last_line
    assert "'town' of typed_tables: expected the categories of training, got 'Bern'" in refused
    told = run(*predict, "out=new.parquet", named, "unseen=empty").succeeded().stderr
    assert "cells have a category that was not in training, such as 'Bern'" in told
    assert accuracy(shop / "new.parquet", shop / "june" / "users.csv") > 0.9
    for option, words in (
        ("dataset.features={user:[age]}", "has no features of user 'joined', which the run"),
        ("dataset.reverse=false", "edge types user-buys-item, and the run was trained on user-b"),
        ("dataset.standardize=true", "of user with a scaling that is not the run's"),
        ("dataset.vertices={user:users.csv}", "with types of dataset.vertices, which are user"),
    ):
        assert words in run(*predict, "out=x.parquet", option).last_line
    plain = ("dataset=planted_partition", "dataset.num_vertices=500", "dataset.num_edges=2000")
    refused = run("predict", "run=run", "out=x.parquet", *plain).last_line
    assert "have no types, and the run was trained on shop, whose vertices have types" in refused


@pytest.mark.integration
def test_commands_on_a_run(shop: Path, run: Run, trained: Path) -> None:
    assert run("evaluate", "run=run").succeeded().stdout.splitlines()[2].startswith("test accuracy")
    resumed = run("train", "resume=run", "epochs=7").succeeded()
    assert "resuming after epoch 6 of 7" in resumed.stderr
    again = run("train", "config=run", "model=hgt", "model.num_heads=2", "epochs=1", "output=hgt")
    again.succeeded()
    assert json.loads((shop / "hgt" / "summary.json").read_text())["epochs"] == 1
    swept = ("dataset.raw=may", "-m", "model=rgcn,rgat", "epochs=1", "output=swept")
    assert "rgat" in run("train", *OF_SHOP, *SMALL, *swept).succeeded().stdout
    exported = run("export", "run=run").succeeded()
    assert exported.stdout.splitlines()[-1] == "run/model.safetensors"
    exported = run("export", "run=run", "format=pyg").succeeded()
    assert "HeteroConv({edge: SAGEConv((16, 16), 3) for edge in edge_types}" in exported.stdout
    assert "format=pyg and format=safetensors" in run("export", "run=run", "format=dgl").last_line
    left_out = ("sampler.edge_fanouts={item-rev_buys-user:[0,5]}", "epochs=1", "output=left_out")
    run("train", "config=run", *left_out).succeeded()
    refused = run("export", "run=left_out", "format=pyg").last_line
    assert "sampler.edge_fanouts leaves out item-rev_buys-user" in refused


@pytest.mark.integration
def test_commands_on_the_graph(shop: Path, run: Run, trained: Path) -> None:
    tables = (*OF_SHOP, "dataset.raw=may")
    store = run("prepare", *tables).succeeded().stdout.strip()
    assert "features-1.npy" in run("doctor", f"store={store}").succeeded().stdout
    for command, purpose in (
        ("plan-cache", "caches"),
        ("simulate", "a simulation"),
        ("generate", "an FPGA design"),
    ):
        refused = run(command, *tables).last_line
        assert f"expected a graph without types for {purpose}, got shop" in refused
    divided = run("partition", *tables, "partitioner=pagraph", "part_stores=true").succeeded()
    assert "vertices owned, by type" in divided.stdout
    part = Path(divided.stdout.splitlines()[-1]) / "parts" / "0"
    assert "features-1.npy" in run("doctor", f"store={part}").succeeded().stdout
    assert run("train", *tables, "epochs=1").last_line.endswith("got GraphSAGE; add model=rsage")
    assert "got RSAGE" in run("generate", "model=rsage").last_line
