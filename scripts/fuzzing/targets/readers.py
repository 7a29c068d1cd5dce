"""Published layouts and odd tables: damaged, prepared, and trained one step on if let in."""

import io
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from gnnscale import data as dataset
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import verify_store
from gnnscale.graph import FEATURE_DTYPES, Graph

from .. import case
from ..case import Input, Keep, Outcome, WrongResultError, case_rng
from ..formats import damaged
from .folders import MODELS, check_graph, train_step
from .samples import SAMPLES, SPLIT, Sample, real_samples

#: Layouts whose raw data are a file, not a folder.
_ONE_FILE = ("EdgeList", "MatrixMarket", "GraphMl")
#: One case in so many damages a real file, which takes longer.
_REAL = 100


class Readers:
    """``prepare``, ``open`` and a step of training on damaged files, of one layout or all."""

    batch, limit_s, uses_files = 64, 20.0, True
    samples = SAMPLES

    def __init__(self, only: str | None = None) -> None:
        self.kinds = [name for name in self.samples if only in (None, name, name.lower())]
        if not self.kinds:
            raise ValueError(f"{only}: readers are {', '.join(self.samples)}")
        self.name = "readers" if only is None else f"readers-{self.kinds[0].lower()}"
        self._real: dict[str, Sample] = {}

    def prepare(self) -> None:
        self._real = real_samples()

    def make(self, key: str, number: int, keep: Keep = None) -> Input:
        rng = case_rng(key, number)
        layout = self.kinds[number % len(self.kinds)]
        sample = rng.choice(self.samples[layout])
        if rng.randrange(_REAL) == 0:
            sample = self._real.get(layout, sample)
        options = dict(sample.options) | self.options(rng)
        files, edits = damaged(sample.files, key, number, rng.choice((0, 1, 1, 1, 1, 2, 3)), keep)
        odd = case.odd_places(files, case_rng(key, number, "odd"))
        return Input(kind=layout, options=options, files=files, edits=tuple(edits), odd=odd)

    def options(self, rng: random.Random) -> dict[str, Any]:
        """Return options of a case, besides those of its sample."""
        return reader_options(rng)

    def use(self, graph: Graph, number: int) -> None:
        """Check a graph that was read, and train on it; ``number`` chooses a model."""
        check_graph(graph)
        train_step(graph, list(MODELS)[number % len(MODELS)])

    def run(self, made: Input, folder: Path) -> Outcome:
        raw = folder / "raw"
        raw.mkdir()
        made.write(raw)
        os.environ["GNNSCALE_HOME"] = str(folder / "home")
        layout = getattr(dataset, made.kind)
        prepared: list[Path] = []

        def body() -> None:
            place = raw / next(iter(made.files), "none") if made.kind in _ONE_FILE else raw
            reader = layout(raw=str(place), **made.options)
            prepared.append(reader.prepare())
            graph = reader.open()
            for check in verify_store(prepared[0]):
                if check.problem is not None:
                    raise WrongResultError(f"the store has {check.what} wrong")
            self.use(graph, len(made.edits))

        names = [str(folder), "dataset.", f"features of {made.options['name']}"]
        outcome = case.guarded(body, (GraphError, ConfigError), names)
        if outcome.is_finding:
            return outcome
        stores = {f"home/graphs/{store.name}" for store in prepared}
        empty = set() if prepared else {"home", "home/graphs"}
        return case.strange_files(folder, {"raw", case.ASIDE, *stores, *empty}) or outcome


def reader_options(rng: random.Random) -> dict[str, Any]:
    choices: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(("undirected", "drop_duplicates", "normalize_features"), (True, False)),
        **{"self_loops": ("keep", "remove", "add"), "memory_bytes": (64, 1 << 20)},
        "feature_dtype": tuple(FEATURE_DTYPES),
    }
    names = rng.sample(sorted(choices), rng.choice((0, 0, 0, 1, 2)))
    picked = {name: rng.choice(choices[name]) for name in names}
    if picked.get("feature_dtype") == "uint8":
        picked.pop("normalize_features", None)
    return picked


_NUM_VERTICES, _NUM_EDGES, _ENDS = 12, 40, ("source", "target")
#: Bytes that are no UTF-8, and text that a terminal or a page would follow.
_TEXTS = (
    *(b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"a\x00b", b"\x1b[31m", b"", b" ", b"nan"),
    *(b"-1", b"1e400", b"\xe2\x80\xae", b"a,b", b'"', b"a\nb", b"x" * 5000, b"train", b"0"),
)
_NUMBERS = (0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 127, 1000)
#: Characters of a text that a dictionary has once and rows have again and again.
_LONG = 100_000
#: Rows that a table may have more than others, one case in so many.
_MANY, _SELDOM = 30_000, 200


class TableFiles(Readers):
    """``dataset=tables``: columns of odd types and cells, files that say what does not hold."""

    def __init__(self) -> None:
        super().__init__("Tables")
        self.name = "tables"

    def make(self, key: str, number: int, keep: Keep = None) -> Input:
        rng = case_rng(key, number)
        files, edits = damaged(_files(rng), key, number, rng.choice((0, 0, 1, 1, 2)), keep)
        options = {"name": "tiny", **_options(rng), **reader_options(rng)}
        odd = case.odd_places(files, case_rng(key, number, "odd"))
        return Input(kind="Tables", options=options, files=files, edits=tuple(edits), odd=odd)


def _options(rng: random.Random) -> dict[str, Any]:
    picked: dict[str, Any] = {}
    if rng.random() < 0.3:
        picked |= {"split": "random", **SPLIT}
    if rng.random() < 0.1:
        picked["label"] = None
        picked.pop("split", None)
    choices: dict[str, tuple[Any, ...]] = {
        **{"id_type": ("auto", "integer", "string"), "label_kind": ("auto", "classes", "values")},
        **{"features": (["a"], ["a", "b"], ["x"]), "weight": (None, "weight")},
        "delimiter": ("tab", ";"),
    }
    for name in rng.sample(sorted(choices), rng.choice((0, 0, 1, 2))):
        picked[name] = rng.choice(choices[name])
    return picked


def _files(rng: random.Random) -> dict[str, bytes]:
    """Return a table of vertices and one of edges, of which mostly one column or two are odd."""
    ids = rng.choice((np.arange(_NUM_VERTICES), np.arange(_NUM_VERTICES) + 7))
    keys = pa.array(ids) if rng.random() < 0.5 else pa.array([f"v{each}" for each in ids])
    part = (["train"] * 5 + ["valid"] * 3 + ["test"] * 4)[:_NUM_VERTICES]
    rows = np.arange(_NUM_VERTICES * 3, dtype=np.float32).reshape(_NUM_VERTICES, 3)
    ends = np.random.default_rng(1).integers(_NUM_VERTICES, size=(2, _NUM_EDGES))
    vertices = {"id": keys, "label": pa.array(np.arange(_NUM_VERTICES) % 3)}
    vertices |= {"split": pa.array(part), "x": pa.array(rows.tolist())}
    vertices |= {"a": pa.array(rows[:, 0]), "b": pa.array(rows[:, 1].astype(np.int32))}
    edges = {name: keys.take(pa.array(each)) for name, each in zip(_ENDS, ends, strict=True)}
    edges["weight"] = pa.array(ends[0] / 8)
    for table in rng.choice(((), (vertices,), (vertices,), (edges,), (vertices, edges))):
        for name in rng.sample(sorted(table), rng.choice((1, 1, 2))):
            table[name] = _odd(table[name], rng)
    if rng.random() < 0.1:
        del vertices[rng.choice(sorted(vertices))]
    written = _parquet if rng.random() < 0.7 else _csv
    if rng.randrange(_SELDOM) == 0 and written is _parquet:
        for table in (vertices, edges):
            if not any(map(_is_wide, table.values())):
                table.update({name: _longer(column) for name, column in table.items()})
    return written("vertices", vertices, rng) | written("edges", edges, rng)


def _parquet(name: str, columns: Mapping[str, pa.Array], rng: random.Random) -> dict[str, bytes]:
    table = pa.table(dict(columns))
    half = len(table) // 2 if rng.random() < 0.15 else len(table)
    parts = {f"{name}.parquet": table}
    if half < len(table):
        parts = {f"{name}/0.parquet": table.slice(0, half), f"{name}/1.parquet": table.slice(half)}
    files = {}
    for file, part in parts.items():
        out, packing = io.BytesIO(), rng.choice(("none", "snappy", "gzip", "zstd", "lz4"))
        chosen = {"compression": packing, "use_dictionary": rng.random() < 0.7}
        chosen |= {"row_group_size": rng.choice((1, 5, 1000, 1 << 20))}
        chosen |= {"data_page_version": rng.choice(("1.0", "2.0"))}
        chosen |= {"write_statistics": rng.random() < 0.5, "store_schema": rng.random() < 0.8}
        parquet.write_table(part, out, **chosen)
        files[file] = out.getvalue()
    return files


def _csv(name: str, columns: Mapping[str, pa.Array], rng: random.Random) -> dict[str, bytes]:
    """Return a file with the cells as text; those of a column that CSV cannot hold are odd."""
    plain = {each: _as_text(column, rng) for each, column in columns.items()}
    out = io.BytesIO()
    out.write((rng.choice((",", ",", ";", "\t")).join(plain) + "\n").encode())
    for row in zip(*plain.values(), strict=True):
        out.write(b",".join(row) + rng.choice((b"\n", b"\n", b"\n", b"\r\n")))
    return {f"{name}.csv": out.getvalue()}


def _as_text(column: pa.Array, rng: random.Random) -> list[bytes]:
    cells = []
    for place in range(len(column)):
        if rng.random() < 0.02:
            cells.append(rng.choice(_TEXTS))
            continue
        try:
            cells.append(str(column[place].as_py()).encode())
        except (ValueError, OverflowError, pa.ArrowException):
            cells.append(rng.choice(_TEXTS))
    return cells


def _raw_text(texts: list[bytes]) -> pa.Array:
    """Return a column of text, whose bytes need not be UTF-8."""
    binary = pa.array(texts, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())


def _other_text(column: pa.Array, rng: random.Random) -> pa.Array:
    texts = [str(each).encode() for each in column.to_pylist()]
    for _ in range(rng.choice((1, 1, 3))):
        texts[rng.randrange(len(texts))] = rng.choice(_TEXTS)
    raw = _raw_text(texts)
    return raw.dictionary_encode() if rng.random() < 0.5 else raw


def _odd(column: pa.Array, rng: random.Random) -> pa.Array:
    try:
        return rng.choice(_ODD)(column, rng)
    except pa.ArrowException:
        return column


def _long_text(column: pa.Array, rng: random.Random) -> pa.Array:
    """Return a column of one text that is long, by a dictionary."""
    words = [b"v" * rng.choice((1000, _LONG, _LONG)), b"w"]
    places = pa.array(np.zeros(len(column), np.int32))
    return pa.DictionaryArray.from_arrays(places, _raw_text(words))


def _typed(column: pa.Array, rng: random.Random) -> pa.Array:
    """Return numbers, or what can be made of them, as another type."""
    kinds = (
        *(pa.int8(), pa.uint8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.date32()),
        *(pa.decimal128(38, 3), pa.decimal256(50, 3), pa.timestamp("us"), pa.time64("ns")),
        *(pa.duration("s"), pa.binary(), pa.large_string(), pa.binary(8), pa.null()),
    )
    kind = rng.choice(kinds)
    numbers = [rng.choice(_NUMBERS) if rng.random() < 0.1 else each for each in range(len(column))]
    try:
        return pa.array(numbers).cast(kind, safe=False)
    except pa.ArrowException:
        return pa.nulls(len(column), kind)


def _nested(column: pa.Array, rng: random.Random) -> pa.Array:
    count = len(column)
    makers: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.array([[each] * (each % 3) for each in range(count)]),
        lambda: pa.array([[[1.0], [2.0]]] * count),
        lambda: pa.array([{"a": each, "b": [each]} for each in range(count)]),
        lambda: pa.array([[("k", 1)]] * count, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([[0.5, None]] * count, pa.list_(pa.float32(), 2)),
        lambda: pa.array([None, *[[1.0, 2.0]] * (count - 1)]),
        lambda: pa.array([[]] * count, pa.large_list(pa.float32())),
        lambda: pa.array([["x"]] * count),
        lambda: pa.array([[0.0] * rng.choice((1000, 70_000)), *[[1.0]] * (count - 1)]),
    )
    return rng.choice(makers)()


def _is_wide(column: pa.Array) -> bool:
    """Return whether repeating a column takes much memory here; a dictionary does not."""
    return not pa.types.is_dictionary(column.type) and column.nbytes > _LONG


def _longer(column: pa.Array) -> pa.Array:
    """Return a column with its rows again and again, up to ``_MANY``."""
    return column.take(pa.array(np.arange(_MANY) % len(column)))


def _with_nulls(column: pa.Array, rng: random.Random) -> pa.Array:
    values = column.to_pylist()
    values[rng.randrange(len(values))] = None
    return pa.array(values, column.type)


def _other_numbers(column: pa.Array, rng: random.Random) -> pa.Array:
    odd: tuple[Any, ...] = (*_NUMBERS, float("nan"), float("inf"), -0.5, 1e300)
    whole = rng.random() < 0.5
    values = [rng.choice(_NUMBERS if whole else odd) for _ in range(len(column))]
    return pa.array(values) if whole else pa.array([float(each) for each in values])


def _repeated(column: pa.Array, rng: random.Random) -> pa.Array:
    count = len(column)
    places = [rng.randrange(count) if rng.random() < 0.2 else each for each in range(count)]
    return column.take(pa.array(places))


#: What may be done to a column.
_ODD: tuple[Callable[[pa.Array, random.Random], pa.Array], ...] = (
    *(_other_text, _other_text, _typed, _typed, _nested, _nested, _with_nulls, _other_numbers),
    *(_repeated, _long_text, lambda column, rng: column.dictionary_encode()),
)
