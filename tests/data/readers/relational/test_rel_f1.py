"""rel-f1: sizes that RelBench publishes, and labels by a second computation in pandas."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gnnscale.core import ConfigError, GraphError
from gnnscale.data import RelF1, read_ids
from gnnscale.data.tables.feature_columns import read_type_columns
from gnnscale.graph import NO_TIME, Graph

#: Rows of training, validation and test in RelBench's tables.
SIZES = {
    "driver-dnf": [11_411, 566, 702],
    "driver-top3": [1_353, 588, 726],
    "driver-position": [7_453, 499, 760],
}
VALID, TEST = pd.Timestamp("2005-01-01"), pd.Timestamp("2010-01-01")
TIMED = [
    "results",
    "driver_standings",
    "constructor_results",
    "constructor_standings",
    "qualifying",
]
EDGE_TYPES = {
    "circuits": ["races-circuitId"],
    "races": [
        *("results-raceId", "standings-raceId", "constructor_results-raceId"),
        *("constructor_standings-raceId", "qualifying-raceId"),
    ],
    "drivers": ["results-driverId", "standings-driverId", "qualifying-driverId"],
    "constructors": [
        *("results-constructorId", "constructor_results-constructorId"),
        *("constructor_standings-constructorId", "qualifying-constructorId"),
    ],
}


@pytest.fixture(scope="module")
def raw(test_data: Path) -> Path:
    return test_data / "relational" / "rel_f1"


@pytest.fixture(scope="module")
def frames(raw: Path) -> dict[str, pd.DataFrame]:
    """Return the timed tables with the dates that RelBench's rules give their rows."""
    tables = {file.stem: pd.read_csv(file, na_values=["\\N"]) for file in raw.glob("*.csv")}
    races = tables["races"]
    races["date"] = pd.to_datetime(races["date"] + " " + races["time"].fillna("00:00:00"))
    for name in TIMED:
        tables[name] = tables[name].merge(races[["raceId", "date"]], on="raceId", how="left")
    tables["qualifying"]["date"] -= pd.Timedelta(days=1)
    return tables


def label(task: str, events: pd.DataFrame) -> pd.Series:
    """Return the label of each driver with ``events``."""
    drivers = events.groupby("driverId")
    if task == "driver-dnf":
        return drivers["statusId"].apply(lambda status: int((status != 1).any()))
    if task == "driver-top3":
        return (drivers["position"].min() <= 3).astype(int)
    return drivers["positionOrder"].mean()


def expected_rows(task: str, frames: dict[str, pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the rows of each part, as the queries of RelBench name them, cut-off by cut-off."""
    events = frames["qualifying" if task == "driver-top3" else "results"]
    step = pd.Timedelta(days=60 if task == "driver-position" else 30)
    dates = pd.concat([frames[name]["date"] for name in ("races", *TIMED)])
    cutoffs = [
        pd.date_range(VALID - step, dates.min(), freq=-step),
        pd.date_range(VALID, min(VALID + 39 * step, TEST - step), freq=step),
        pd.date_range(TEST, min(TEST + 39 * step, dates.max() - step), freq=step),
    ]
    parts = []
    for number, times in enumerate(cutoffs):
        known = events[events["date"] <= TEST] if number < 2 else events
        rows = []
        for time in times:
            active = known[known["date"] > time - pd.DateOffset(years=1)]["driverId"].unique()
            window = known[(known["date"] > time) & (known["date"] <= time + step)]
            labels = label(task, window[window["driverId"].isin(active)])
            rows.append(
                pd.DataFrame({"driver": labels.index, "time": time, "label": labels.values})
            )
        part = pd.concat([row for row in rows if len(row)])
        parts.append(part.sort_values(["time", "driver"], ignore_index=True))
    return parts


@pytest.fixture(scope="module")
def opened(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    stores = tmp_path_factory.mktemp("stores")

    def open_task(task: str, *, before_test: bool = False) -> Graph:
        store = stores / f"{task}-{before_test}"
        return RelF1(raw=str(raw), task=task, store=str(store), before_test=before_test).open()

    return open_task


@pytest.mark.parametrize("task", SIZES)
def test_rows_are_those_of_relbench(
    task: str, opened: Any, frames: dict[str, pd.DataFrame]
) -> None:
    graph = opened(task)
    rows, split, ids = graph.rows, graph.rows.split, np.asarray(read_ids(graph))
    parts = [split.train_idx, split.valid_idx, split.test_idx]
    assert [len(part) for part in parts] == SIZES[task]
    drivers = graph.schema.vertices(graph.vertex_types.index("drivers"))
    assert ((rows.vertices >= drivers.start) & (rows.vertices < drivers.stop)).all()
    for part, expected in zip(parts, expected_rows(task, frames), strict=True):
        order = part[np.lexsort((ids[rows.vertices[part]], rows.cutoffs[part]))]
        times = rows.cutoffs[order].astype("datetime64[s]")
        np.testing.assert_array_equal(ids[rows.vertices[order]], expected["driver"])
        np.testing.assert_array_equal(times, expected["time"].to_numpy("datetime64[s]"))
        np.testing.assert_array_equal(
            rows.labels[order], expected["label"].astype(rows.labels.dtype)
        )
    metric = ("mae", 1) if task == "driver-position" else ("roc_auc", 2)
    assert (rows.metric, rows.num_classes) == metric


def test_tables_edges_and_times(opened: Any, frames: dict[str, pd.DataFrame]) -> None:
    graph = opened("driver-dnf")
    counts = {of.name: of.num_vertices for of in graph.schema.vertex_types}
    files = {"standings": "driver_standings"}
    assert counts == {name: len(frames[files.get(name, name)]) for name in counts}
    forward = {f"{name}-{of}" for of, names in EDGE_TYPES.items() for name in names}
    types = {str(edge_type) for edge_type in graph.schema.edge_types}
    assert {name for name in types if "-rev_" not in name} == forward
    assert len(types) == 2 * len(forward)
    # No key is missing, so that each row has an edge by each key, and its reverse.
    lengths = np.diff(graph.indptr)
    for number, edge_type in enumerate(graph.schema.edge_types):
        table = edge_type.destination if edge_type.relation.startswith("rev_") else edge_type.source
        assert lengths[graph.schema.rows(number)].sum() == counts[table]
    for number, of_type in enumerate(graph.schema.vertex_types):
        times = graph.times.vertices[graph.schema.vertices(number)]
        if of_type.name in ("drivers", "circuits", "constructors"):
            assert (times == NO_TIME).all()
        else:
            dates = frames[files.get(of_type.name, of_type.name)]["date"]
            np.testing.assert_array_equal(
                times.astype("datetime64[s]"), dates.to_numpy("datetime64[s]")
            )
    assert (graph.times.edges != NO_TIME).all()


def test_graph_ends_where_test_begins(opened: Any, frames: dict[str, pd.DataFrame]) -> None:
    whole, graph = opened("driver-dnf"), opened("driver-dnf", before_test=True)
    last = graph.times.edges.max().astype("datetime64[s]")
    dates = frames["results"]["date"]
    assert last == dates[dates <= TEST].max()
    counts = {of.name: of.num_vertices for of in graph.schema.vertex_types}
    assert counts["results"] == (dates <= TEST).sum()
    assert counts["drivers"] == len(frames["drivers"])
    ids = [np.asarray(read_ids(of))[of.rows.vertices] for of in (whole, graph)]
    np.testing.assert_array_equal(*ids)
    for name in ("cutoffs", "labels"):
        np.testing.assert_array_equal(getattr(whole.rows, name), getattr(graph.rows, name))


def test_columns_have_no_key_and_no_date_of_the_row(opened: Any) -> None:
    columns = read_type_columns(opened("driver-dnf"))
    names = {name: [column.name for column in of_type] for name, of_type in columns.items()}
    assert names["races"] == ["year", "round", "name", "time"]
    assert names["drivers"] == ["dob", "nationality"]
    assert names["qualifying"] == ["number", "position"]
    assert "statusId" in names["results"]
    assert not {"date", "raceId", "driverId"} & {name for of in names.values() for name in of}


def test_files_that_are_not_rel_f1(raw: Path, tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "raw"
    shutil.copytree(raw, folder)
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)
    results = folder / "results.csv"
    text = results.read_text()

    def problem(replacement: str) -> str:
        results.write_text(replacement)
        with pytest.raises(GraphError) as caught:
            RelF1(raw=str(folder)).read_graph()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "results.csv: has no column statusId" in problem(text.replace("statusId", "status"))
    first, row, rest = text.split("\n", 2)
    assert "1 rows have a raceId that races.csv lacks, such as 99999 in row 1" in problem(
        "\n".join([first, row.replace("18,", "99999,", 1), rest])
    )
    assert "row 1: raceId is empty" in problem(
        "\n".join([first, row.replace("18,", "\\N,", 1), rest])
    )
    results.write_text(text)
    races = folder / "races.csv"
    races.write_text(races.read_text().replace('"2009-03-29"', '"2009-03-32"'))
    assert "races.csv: row 1: expected a date and a time of day, got 2009-03-32" in problem(text)
    results.unlink()
    with pytest.raises(GraphError, match=r"results.csv: missing; dataset.raw needs the folder"):
        RelF1(raw=str(folder)).open()
    with pytest.raises(ConfigError, match=r"dataset.task=dnf: allowed are driver-dnf, driver-top3"):
        RelF1(raw=str(folder), task="dnf")
    with pytest.raises(ConfigError, match=r"dataset.split"):
        RelF1(raw=str(folder), split="random")
