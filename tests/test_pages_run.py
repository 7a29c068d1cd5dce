import csv
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from pyarrow import parquet
from typed_modules import purchases

import gnnscale
from gnnscale.data import Tables

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

#: Parts of the split that a sweep compares by.
PARTS = ("Validation", "Test")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch, write_figures) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(write_figures(tmp_path / "home")))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run_command(request, tmp_path) -> Callable[[list[str]], str]:
    """Run a command that a page shows in the current folder, and return what it printed."""

    def run(words: list[str]) -> str:
        assert words[0] == "gnnscale"
        run_lines = request.getfixturevalue("run_lines")  # a page without commands needs none
        line = [f"GNNSCALE_HOME={tmp_path / 'home'}", *words[1:]]
        (answer,) = run_lines([line], Path.cwd())
        return answer.succeeded().stdout

    return run


@pytest.mark.parametrize(
    ("page", "needs"),
    [
        ("from-python.md", ()),
        pytest.param("featureless-graphs.md", ("pyarrow",), marks=pytest.mark.integration),
        pytest.param(
            "typed-graphs.md",
            ("pyarrow", "pandas", "torch_geometric"),
            marks=pytest.mark.integration,
        ),
        pytest.param("timed-graphs.md", ("pyarrow",), marks=pytest.mark.integration),
        pytest.param("edge-files.md", ("pyarrow", "networkx"), marks=pytest.mark.integration),
        pytest.param(
            "export-and-predict.md", ("pyarrow", "torch_geometric"), marks=pytest.mark.long
        ),
    ],
)
def test_what_a_page_shows_runs(run_command, page, needs) -> None:
    for each in needs:
        pytest.importorskip(each, reason=f"{each} is not installed")
    names: dict[str, Any] = {}
    text = (DOCS / page).read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) > 1
    for language, block in blocks:
        if language == "python":
            exec(compile(block, page, "exec"), names)
            continue
        for line in block.splitlines():
            run_command(shlex.split(line))


@pytest.mark.integration
def test_graphs_of_networkx_and_pandas_are_read_as_the_page_shows() -> None:
    pytest.importorskip("networkx")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "in-memory.md").read_text(), re.S)
    names: dict[str, Any] = {}
    for block in blocks[:2]:
        exec(compile(block, "in-memory.md", "exec"), names)
    assert names["result"].predict([0, 33]).tolist() == [0, 1]
    assert names["result"].class_names == ["Mr. Hi", "Officer"]
    assert names["graph"].num_features == 4  # the age and whether it is known, and two towns


@pytest.mark.integration
def test_a_module_of_a_notebook_trains_as_the_page_shows() -> None:
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    graph = re.search(r"^```python\n(.*?)```", (DOCS / "from-python.md").read_text(), re.M | re.S)
    text = (DOCS / "your-model.md").read_text()
    module = re.search(r"<!-- own-module -->\n```python\n(.*?)```", text, re.S)
    # No process can import this.
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in (graph[1], module[1]):
        exec(compile(block, "your-model.md", "exec"), names)
    found = gnnscale.load(names["result"].directory, module=names["Net"], arguments={"width": 32})
    assert (found.predict() == names["result"].predict()).all()


@pytest.mark.integration
def test_a_module_over_types_trains_as_the_page_shows() -> None:
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    text = (DOCS / "your-model.md").read_text()
    block = re.search(r"<!-- typed-module -->\n```python\n(.*?)```", text, re.S)
    data = purchases()
    for number, part in enumerate(("train_mask", "val_mask", "test_mask")):
        data["user"][part] = torch.arange(60) % 3 == number
    names: dict[str, Any] = {"data": data, "gnnscale": gnnscale}
    exec(compile(block[1], "your-model.md", "exec"), names)
    assert names["result"].predict().shape == (60,)


@pytest.mark.integration
def test_loops_of_loaders_run_as_the_page_shows() -> None:
    library = pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    dgl = pytest.importorskip("dgl", reason="DGL is not installed")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "loader.md").read_text(), re.S)
    plain, typed, typed_dgl, links = blocks
    src, dst = torch.randint(20, (2, 90), generator=torch.Generator().manual_seed(0))
    x = torch.rand(20, 4)
    data = library.data.Data(x=x, edge_index=torch.stack([src, dst]), train_mask=src[:20] > 9)
    hetero = library.data.HeteroData(user={"x": x}, item={"x": x})
    hetero["user"].train_mask = data.train_mask
    relations = [("user", "buys", "item"), ("item", "bought_by", "user")]
    for triple in relations:
        hetero[triple].edge_index = data.edge_index
    graph, typed_graph = (
        dgl.graph((src, dst)),
        dgl.heterograph(dict.fromkeys(relations, (src, dst))),
    )
    graph.ndata["feat"] = typed_graph.nodes["user"].data["feat"] = x
    typed_graph.nodes["user"].data["label"] = torch.arange(20)
    names = {
        "NeighborLoader": gnnscale.NeighborLoader,
        "train_ids": torch.arange(9),
        "train_users": torch.arange(7),
        "train_items": torch.arange(5),
        "train_edges": data.edge_index[:, :30],
        "bce_with_logits": torch.nn.functional.binary_cross_entropy_with_logits,
        "encoder": lambda x_dict, edges: x_dict,
    }
    first = {"data": data, "graph": graph, "model": lambda *inputs: x}
    exec(plain, names | first)
    exec(typed, names | {"data": hetero, "model": lambda x_dict, edges: x_dict})
    shown: dict[str, Any] = names | {"graph": typed_graph, "model": lambda blocks, x_dict: x_dict}
    exec(typed_dgl, shown)
    assert shown["labels"].tolist() == [*range(7)]
    shown = names | {"data": hetero}
    exec(links, shown)
    assert 0 < shown["loss"] < 2


@pytest.mark.long
def test_features_of_edges_are_stored_as_the_page_shows(run_command) -> None:
    text = (DOCS / "your-graph.md").read_text()
    found = re.search(r"<!-- edge-features -->\n```python\n(.*?)```\n\n```\n(.*?)```", text, re.S)
    names: dict[str, Any] = {}
    exec(compile(found[1], "your-graph.md", "exec"), names)
    in_memory = names["of_edges"]
    for command in found[2].splitlines():
        stored = gnnscale.Graph.open(run_command(shlex.split(command)).split()[-1])
        np.testing.assert_allclose(stored.edge_features, names["payments"], rtol=1e-6)
        # Edges that repeat are stored once, with the features of the first.
        ends = np.repeat(np.arange(200), np.diff(stored.indptr)), stored.indices
        first = {}
        for row, pair in enumerate(zip(names["dst"], names["src"], strict=True)):
            first.setdefault(pair, row)
        assert [first[pair] for pair in zip(*ends, strict=True)] == stored.edge_rows.tolist()
    assert in_memory.shape == (2000, 2)


@pytest.mark.integration
def test_payments_of_june_are_predicted_as_the_page_shows(run_command) -> None:
    """Amounts about 1000 and kinds decide; June is read by the scales and categories of May."""
    text = (DOCS / "your-graph.md").read_text()
    first = re.search(r"<!-- edge-features -->\n```python\n(.*?)```", text, re.S)
    found = re.search(r"<!-- next-month -->\n```python\n(.*?)```\n\n```\n(.*?)```", text, re.S)
    names: dict[str, Any] = {}
    for block in (first[1], found[1]):
        exec(compile(block, "your-graph.md", "exec"), names)
    for command in found[2].splitlines():
        run_command(shlex.split(command))
    with open("june.csv") as file:
        expected = [row["fraud"] for row in csv.DictReader(file)]
    table = parquet.read_table("june.parquet")
    right = np.array(table["class"].to_pylist()) == expected
    # A fifth is fraud; with May's numbers unscaled, or June's, about so many are found.
    assert 0.7 < expected.count("no") / len(expected) < 0.85
    assert right.mean() > 0.97


@pytest.mark.integration
def test_tables_of_a_bank_train_and_predict_as_the_page_shows(run_command, caplog) -> None:
    """June's payments are read by the columns, means and first days of May."""
    text = (DOCS / "tables.md").read_text()
    block = r"<!-- bank -->\n```python\n(.*?)```\n\n```\n(.*?)```.*?```text\n(.*?)```"
    found = re.search(block, text, re.S)
    exec(compile(found[1], "tables.md", "exec"), {})
    commands = found[2].splitlines()
    for command in commands:
        run_command(shlex.split(command))
    options = re.findall(r" dataset\.(\w+)=(\S+)", commands[0])
    with caplog.at_level("INFO", "gnnscale"):
        Tables(**{name: yaml.safe_load(value) for name, value in options}).prepare(force=True)
    assert set(found[3].splitlines()) <= set(caplog.messages)
    with open("june/payments.csv") as file:
        expected = [row["fraud"] for row in csv.DictReader(file)]
    right = np.array(parquet.read_table("june.parquet")["class"].to_pylist()) == expected
    # A fifth is fraud, and a tenth of the amounts is empty.
    assert 0.7 < expected.count("no") / len(expected) < 0.85
    assert right.mean() > 0.94


@pytest.mark.integration
def test_a_sweep_is_compared_as_the_page_shows(run_command, capsys) -> None:
    text = (DOCS / "run-directory.md").read_text()
    found = re.search(r"<!-- sweep -->\n```\n(.*?)\n```.*?```python\n(.*?)```", text, re.S)
    run_command(shlex.split(found[1]))
    page = Path("compared", "report.html").read_text()
    titles = re.findall("<h[23]>(.*?)</h[23]>", page)
    assert titles[:3] == ["Metric", *(f"{part} accuracy, higher is better" for part in PARTS)]
    for option in ("optimizer.lr", "model.hidden"):
        assert f"Test accuracy, higher is better, by {option}" in titles
    grid = re.findall(r'<table class="heat">(.*?)</table>', page, re.S)[PARTS.index("Test")]
    heads = re.findall("<th .*?>(.*?)</th>", grid)
    assert [re.sub("<.*?>", "", head) for head in heads] == ["8", "32", "0.003", "0.03"]
    assert len(re.findall("<td style.*?>0[.][0-9]{4}</td>", grid)) == 4
    assert re.findall(r'href="./(\d)/report.html"', page) == [*"01234567"]
    assert all(Path("compared", job, "report.html").is_file() for job in "01234567")
    names: dict[str, Any] = {}
    exec(compile(found[2], "run-directory.md", "exec"), names)
    assert names["of_rate"].keys() == {"0.003", "0.03"}
    assert [len(each) for each in names["of_rate"].values()] == [4, 4]
    assert "'0.03': 0." in capsys.readouterr().out


def readme_blocks() -> tuple[str, list[list[str]]]:
    """Return what the README makes a graph with, and the commands that go on with it."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"<!-- your-graph -->\n```python\n(.*?)```\n\n```\n(.*?)```", text, re.S)
    return found[1], [shlex.split(line) for line in found[2].splitlines()]


@pytest.mark.integration
@pytest.mark.parametrize(
    "source",
    [
        "arrays",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("torch_geometric", "dgl")),
    ],
)
def test_the_readmes_way_from_a_graph_to_predictions(
    run_command, source, tmp_path, monkeypatch
) -> None:
    library = None if source == "arrays" else pytest.importorskip(source)
    program, commands = readme_blocks()
    names: dict[str, Any] = {}
    exec(compile(program, "README.md", "exec"), names)
    if library is not None:
        monkeypatch.chdir(saved_store(source, library, names, tmp_path))
        command = "gnnscale train dataset=store dataset.store=mine_store output=mine"
        commands[0] = shlex.split(command)
    for command in commands:
        run_command(command)
    predicted = parquet.read_table("mine.parquet")
    assert predicted["id"].to_pylist() == list(range(2000))
    right = np.mean(predicted["class"].to_numpy() == names["labels"])
    assert right > 0.4  # of four classes, by features with as much noise


def saved_store(source: str, library: Any, names: dict[str, Any], folder: Path) -> Path:
    """Save the README's graph by way of a library's own, and return the folder to work in."""
    x, y = torch.from_numpy(names["features"]).float(), torch.from_numpy(names["labels"])
    part = torch.arange(2000) % 5
    masks = {"train_mask": part > 1, "val_mask": part == 1, "test_mask": part == 0}
    edges = torch.from_numpy(names["edge_index"])
    if source == "torch_geometric":
        from torch_geometric.data import Data

        graph = gnnscale.from_pyg(Data(x=x, y=y, edge_index=edges, **masks))
    else:
        made = library.graph((edges[0], edges[1]), num_nodes=2000)
        made.ndata.update({"feat": x, "label": y, **masks})
        graph = gnnscale.from_dgl(made)
    graph.save(folder / "mine_store")
    return folder
