"""Graph stores: damaged ones are opened, sampled, and trained one step on."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnscale import dataset
from gnnscale.config import ConfigError
from gnnscale.dataset import verify_store
from gnnscale.graph import Graph, GraphError
from gnnscale.partition import PaGraph, write_part

from ..case import Input, Outcome, case_rng
from ..structured import npy_element
from ..verdict import WrongResultError, guarded, strange_files
from .readers import damaged
from .samples import SAMPLES, Sample
from .training import MODELS, sample_all, train_step

__all__ = ["Stores"]

#: A layout's sample, by number, and what is to be otherwise in the store; with ``part``, it is
#: that of a part of the graph.
_STORES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("Ogb", 0, {}),
    ("Ogb", 0, {"feature_dtype": "float16", "undirected": True}),
    ("Ogb", 1, {"feature_dtype": "bfloat16"}),
    ("GnnBenchmark", 0, {"feature_dtype": "uint8"}),
    ("GraphSaint", 0, {}),
    ("Heterophilous", 0, {"self_loops": "add"}),
    ("Ogb", 0, {"part": 1}),
)
#: Bytes that NumPy's headers have here.
_HEADER = 128
#: Entries of meta.json that tell an array's form.
_FORM = re.compile(rb"'descr': '[<|=>]?(\w+)'.*'shape': \(([\d, ]*)\)")


class Stores:
    """``Graph.open``, all samplers and a step of each model in turn."""

    name = "store"
    batch = 64
    limit_s = 20.0
    uses_files = True

    def __init__(self) -> None:
        self._stores: list[dict[str, bytes]] = []

    def prepare(self) -> None:
        """Prepare the valid stores that are damaged later."""
        with tempfile.TemporaryDirectory(prefix="gnnscale-fuzz-") as folder:
            for number, (layout, which, options) in enumerate(_STORES):
                path = Path(folder, str(number))
                self._stores.append(_prepared(SAMPLES[layout][which], layout, options, path))

    def make(self, key: str, number: int, keep: frozenset[int] | None = None) -> Input:
        """Damage a store's files; meta.json may then be made to agree with them."""
        rng = case_rng(key, number)
        store = number % len(self._stores)
        files: Mapping[str, bytes] = self._stores[store]
        kind = rng.random()
        if kind < 0.5:
            files, edits = _overwritten(files, key, number, keep)
        else:
            files, edits = damaged(files, key, number, rng.choice((0, 1, 1, 1, 2, 3)), keep)
        if kind > 0.7:
            files = _agreeing(files)
        valid = self._stores[store]
        # What is as it was is left out, so that a kept case follows when the format moves on.
        changed = {name: content for name, content in files.items() if content != valid[name]}
        without = sorted(valid.keys() - files.keys())
        options = {"store": store, "without": without}
        model = rng.choice(list(MODELS))
        return Input(kind=model, options=options, files=changed, edits=tuple(edits))

    def run(self, made: Input, folder: Path) -> Outcome:
        """Open, sample and train; where the store is whole, it has to come through."""
        store = folder / "store"
        valid = self._stores[made.options["store"]]
        files = {**valid, **made.files}
        for name in made.options["without"]:
            del files[name]
        Input(kind="", files=files).write(store)
        os.environ["GNNSCALE_HOME"] = str(folder / "home")

        def body() -> None:
            graph = Graph.open(store)
            sample_all(graph)
            train_step(graph, made.kind)

        outcome = guarded(body, (GraphError, ConfigError), [str(store)])
        if outcome.is_finding:
            return outcome
        checked = guarded(lambda: _verify(store, files, valid), (GraphError,), [str(store)])
        if checked.is_finding:
            return checked._replace(detail=f"verify_store: {checked.detail}")
        return strange_files(folder, {"store"}) or outcome


def _verify(store: Path, files: Mapping[str, bytes], valid: Mapping[str, bytes]) -> None:
    """Verify a store.

    Raises:
        GraphError: it is damaged.
        WrongResultError: it is, and that was not noticed.
    """
    problems = [check.problem for check in verify_store(store) if check.problem is not None]
    if problems:
        raise GraphError(problems[0])
    for name in valid:
        if name.endswith(".npy") and files[name][_HEADER:] != valid[name][_HEADER:]:
            raise WrongResultError(f"damage of {name} is not noticed")


def _prepared(
    sample: Sample, layout: str, options: Mapping[str, Any], folder: Path
) -> dict[str, bytes]:
    Input(kind=layout, files=sample.files).write(folder / "raw")
    for path in (folder / "raw").rglob("*"):
        os.utime(path, (0, 0))  # the store names it
    changes = {name: value for name, value in options.items() if name != "part"}
    reader = getattr(dataset, layout)(
        raw=str(folder / "raw"), store=str(folder / "store"), **{**sample.options, **changes}
    )
    store = reader.prepare()
    if "part" in options:
        graph = Graph.open(store)
        parts = PaGraph().assign(graph, num_parts=2, num_hops=2, num_threads=1)
        store = folder / "part"
        write_part(graph, parts, options["part"], store)
    files = {path.name: path.read_bytes() for path in sorted(store.iterdir())}
    meta = files["meta.json"].replace(str(folder).encode(), b"")  # nor where it was made
    return {**files, "meta.json": meta}


def _overwritten(
    files: Mapping[str, bytes], key: str, number: int, keep: frozenset[int] | None
) -> tuple[dict[str, bytes], list[str]]:
    """Overwrite elements of arrays, which no size and no header can tell."""
    changed, edits = dict(files), []
    arrays = [name for name in sorted(files) if name.endswith(".npy")]
    for place in range(case_rng(key, number, "edits").choice((1, 1, 1, 2, 3, 8))):
        rng = case_rng(key, number, place)
        name = rng.choice(arrays)
        if keep is None or place in keep:
            changed[name] = npy_element(changed[name], rng)
            edits.append(f"{place}: {name}")
    return changed, edits


def _agreeing(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Write into meta.json what the arrays' headers say, as somebody with bad intent would."""
    try:
        meta = json.loads(files["meta.json"])
        for name, content in files.items():
            entry = meta["arrays"].get(name.removesuffix(".npy"))
            found = _FORM.search(content[:256])
            if entry and found:
                shape = [int(axis) for axis in found[2].split(b",") if axis.strip()]
                entry.update(bytes=len(content), shape=shape)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return dict(files)  # damaged itself
    return {**files, "meta.json": json.dumps(meta).encode()}
