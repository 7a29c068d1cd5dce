import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gnnscale
from gnnscale.data import Tables, read_classes, read_ids
from gnnscale.data.frames import from_tables
from gnnscale.data.tables.feature_columns import read_columns

PEOPLE = pd.DataFrame(
    {
        "person": ["ann", "bob", "cid", "dan"],
        "age": [30, None, 50, 40],
        "town": pd.Categorical(["Bonn", "Oslo", "Bonn", None]),
        "joined": pd.to_datetime(["2024-01-01", "2024-01-03", None, "2024-01-02"]),
        "plan": ["free", "paid", "paid", None],
        "split": ["train", "train", "valid", None],
    }
)
CALLS = pd.DataFrame({"source": ["ann", "ann", "eve"], "target": ["bob", "cid", "dan"]})


@pytest.fixture(autouse=True)
def own_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_figures: Callable[[Path], Path]
) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(write_figures(tmp_path / "home")))


def test_frames_are_the_graph_of_their_files(tmp_path: Path) -> None:
    graph = from_tables(PEOPLE, CALLS, id="person", label="plan")
    for name, frame in (("vertices", PEOPLE), ("edges", CALLS)):
        pq.write_table(pa.Table.from_pandas(frame), tmp_path / f"{name}.parquet")
    files = Tables(name="people", raw=str(tmp_path), id="person", label="plan").open()
    for array in ("indptr", "indices", "features", "labels", "train_idx", "valid_idx"):
        assert np.array_equal(getattr(graph, array), getattr(files, array)), array
    assert read_ids(graph).to_pylist() == ["ann", "bob", "cid", "dan", "eve"]
    assert read_classes(graph) == ["free", "paid"]
    assert graph.labels.tolist() == [0, 1, 1, -1, -1]
    assert [column.name for column in read_columns(graph) or ()] == ["age", "town", "joined"]
    # Days since the first one, where the mean of the training vertices is 1.
    assert graph.features[:4, -2].tolist() == [0, 2, 1, 1]


def test_a_named_index_is_the_id(tmp_path: Path) -> None:
    graph = from_tables(PEOPLE.set_index("person"), CALLS)
    assert read_ids(graph).to_pylist()[:2] == ["ann", "bob"]
    assert graph.num_classes == 0


@pytest.mark.parametrize("ids", [[2, 0, 1, 3], [4, 5, 6, 7], ["a", "b", "c", "d"]])
def test_an_index_without_a_name_is_the_id_unless_it_counts_the_rows(ids: list[object]) -> None:
    people = pd.DataFrame({"age": [30, 31, 32, 33]})
    calls = pd.DataFrame({"source": [ids[0]], "target": [ids[3]]})
    graph = from_tables(people.set_axis(ids), calls)
    assert graph.features.tolist() == [[30], [31], [32], [33]]
    assert (read_ids(graph).to_pylist(), graph.indices.tolist()) == (ids, [0])
    assert read_ids(from_tables(people, pd.DataFrame({"source": [0], "target": [3]}))) is None


def test_rows_are_ids_without_a_column_of_ids() -> None:
    people = pa.table({"age": [3.0, 4.0, 5.0]})
    graph = from_tables(people, {"source": [0, 2], "target": [1, 1]})
    assert graph.features.tolist() == [[3], [4], [5]]
    assert graph.indices.tolist() == [0, 2]


def test_equal_frames_have_one_store(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        graphs = [from_tables(PEOPLE, CALLS, id="person") for _ in range(2)]
    assert graphs[0].path == graphs[1].path
    assert caplog.text.count("preparing") == 1
    assert ".frames" not in caplog.text
    assert from_tables(PEOPLE[::-1], CALLS, id="person").path != graphs[0].path
    folder = graphs[0].path.parent
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".frames")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lable": "plan"}, "lable: unknown option, did you mean 'label'"),
        ({"raw": "here"}, "raw: unknown option"),
        ({"label": "plann"}, "vertices: has no column 'plann' .*did you mean 'plan'"),
        ({"source": "from"}, "edges: has no column 'from'"),
        ({"missing": "zero"}, "^missing=zero: allowed are mean"),
        ({"vertices": [1, 2]}, "^vertices: expected a data frame"),
        ({"edges": 3}, "^edges: expected a data frame .* got int"),
        ({"vertices": PEOPLE.assign(mixed=[1, "a", 2, 3])}, "^vertices: .* column mixed"),
        ({"vertices": pd.concat([PEOPLE, PEOPLE], axis=1)}, "^vertices: .*uplicate"),
        ({"vertices": pd.concat([PEOPLE, PEOPLE])}, "vertices: .*'ann'"),
    ],
)
def test_errors_name_the_frame_or_the_keyword(changes: dict[str, object], message: str) -> None:
    arguments = {"vertices": PEOPLE, "edges": CALLS, "id": "person", **changes}
    with pytest.raises((gnnscale.ConfigError, gnnscale.GraphError), match=message) as error:
        from_tables(**arguments)
    assert "parquet" not in str(error.value)
    assert "dataset." not in str(error.value)


@pytest.mark.integration
def test_a_frame_trains_and_predicts_the_next_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def month(num: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        town = rng.choice(["Bonn", "Oslo"], num)
        people = pd.DataFrame({"town": town, "plan": np.where(town == "Bonn", "free", "paid")})
        return people, pd.DataFrame(rng.integers(num, size=(num, 2)), columns=["source", "target"])

    people, calls = month(300)
    graph = from_tables(people, calls, label="plan", split="random")
    result = gnnscale.train(
        *(graph, "sage"), epochs=10, lr=0.05, batch_size=64, num_threads=1, directory=tmp_path / "r"
    )
    people, calls = month(50)
    classes = result.predict(graph=from_tables(people.drop(columns="plan"), calls))
    assert [["free", "paid"][number] for number in classes] == people["plan"].tolist()
