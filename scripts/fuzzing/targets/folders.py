"""What targets share whose cases are valid folders, some of whose files are damaged and used."""

import io
import json
import os
import re
import tempfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.graph import Graph, Origin, Split
from gnnscale.graph.dtypes import FEATURE_DTYPES, MAX_QUANTIZED
from gnnscale.graph.store_format import METRICS
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE, ModelConfig, TrainableModel
from gnnscale.nn.base import seed_loss
from gnnscale.nn.optim import Sgd
from gnnscale.sampling import LaborSampler, LayerSampler, MiniBatch, NeighborSampler

from .. import case
from ..case import Edited, Files, Input, Keep, Outcome, WrongResultError, case_rng
from ..formats import damaged, npy_element
from .hostile import hostile_yaml

#: Part of the cases whose files agree with each other about the damage.
_AGREEING = 0.4


class Valid(NamedTuple):
    """A folder as the program makes it, and what the target needs to use it."""

    files: Files
    made_for: Any = None


class Artefact(ABC):
    """A target whose cases are folders that were valid before something in them was damaged."""

    name: str
    batch, limit_s, uses_files = 64, 20.0, True
    place = "store"  #: of the folder, below the case's own
    kinds: tuple[str, ...] = ("",)  #: ways in which it is used
    refusals: tuple[type[Exception], ...] = (GraphError, ConfigError)
    names: tuple[str, ...] = ()  #: one of which a refusal has, if it does not have the path
    leaves: frozenset[str] = frozenset()  #: what else may be there when a case has ended
    writes = False  #: whether using it may write into the folder

    def __init__(self) -> None:
        self._valid: list[Valid] = []
        #: Files of the home folder that every case has.
        self._home: Files = {}

    @abstractmethod
    def valid(self, folder: Path) -> list[Valid]:
        """Make the valid folders in ``folder``, which is the home folder too."""

    @abstractmethod
    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Use the folder of a case, which was ``valid`` before.

        If what is wrong agrees with itself (the case's option ``agreeing``), it may go unnoticed.
        """

    def spoiled(self, files: Files, key: str, number: int, keep: Keep) -> Edited:
        count = case_rng(key, number, "edits").choice((0, 1, 1, 1, 2, 3))
        return damaged(files, key, number, count, keep)

    def agreeing(self, files: Files) -> dict[str, bytes]:
        return dict(files)

    def prepare(self) -> None:
        with tempfile.TemporaryDirectory(prefix="gnnscale-fuzz-") as folder:
            os.environ["GNNSCALE_HOME"] = folder
            self._valid = self.valid(Path(folder))

    def make(self, key: str, number: int, keep: Keep = None) -> Input:
        """Damage a valid folder; what describes other files may then be made to agree with them."""
        rng = case_rng(key, number)
        which = number % len(self._valid)
        valid = self._valid[which].files
        files, edits = self.spoiled(valid, key, number, keep)
        agrees = rng.random() < _AGREEING
        if agrees:
            files = self.agreeing(files)
        # What is as it was is left out, so that a kept case follows when the format moves on.
        changed = {name: content for name, content in files.items() if content != valid.get(name)}
        without = sorted(valid.keys() - files.keys())
        options = {"which": which, "without": without, "agreeing": agrees}
        kind, odd = rng.choice(self.kinds), case.odd_places(files, case_rng(key, number, "odd"))
        return Input(kind=kind, options=options, files=changed, edits=tuple(edits), odd=odd)

    def run(self, made: Input, folder: Path) -> Outcome:
        """Use the folder, which stays as it is; nothing is left beside it."""
        valid = self._valid[made.options["which"]]
        files = {**valid.files, **made.files}
        for name in made.options["without"]:
            del files[name]
        path = folder / self.place
        Input(kind="", files=files, odd=made.odd).write(path)
        Input(kind="", files=self._home).write(folder / "home")
        os.environ["GNNSCALE_HOME"] = str(folder / "home")
        before = {each: case.regular_files(folder / each) for each in (self.place, case.ASIDE)}
        names = [str(path), *self.names]
        outcome = case.guarded(lambda: self.use(path, valid, made), self.refusals, names)
        if outcome.is_finding:
            return outcome
        for each in (case.ASIDE,) if self.writes else before:
            if before[each] and case.regular_files(folder / each) != before[each]:
                return Outcome("wrong result", f"what lay in {each} was changed")
        return case.strange_files(folder, {self.place, case.ASIDE, *self.leaves}) or outcome


#: The form of an array in its header.
_FORM = re.compile(rb"'descr': '([<|=>]?\w+)'.*'shape': \(([\d, ]*)\)")
#: What may stand in the place of any value.
_VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 7, 60, 61, 2**31, 2**62, -(2**63), 2**63 - 1, 10**30, 0.5, -0.5, 1e300, -1e300),
    *(None, True, "", "x", "\x1b[2J", "a\nb", "\ud800", "[bold]x[/]", "<svg>", "x" * 1000),
    *([], [1], [0, 0], [[0, 1], [2]], [1, 0, 2, 5], {}, {"0": 1}),
)


class YamlFile(Artefact):
    """A target whose cases are one YAML file, with odd values, code or damage in it."""

    file: str

    def shipped(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the values of files of the target's group that ship, without their class."""
        folder = resources.files("gnnscale.configs") / self.name
        found = [yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in names]
        return [{key: each[key] for key in each if key != "_target_"} for each in found]

    def written(self, values: Any) -> dict[str, bytes]:
        return {self.file: yaml.safe_dump(values).encode()}

    def spoiled(self, files: Files, key: str, number: int, keep: Keep) -> Edited:
        rng = case_rng(key, number, "kind")
        kind = rng.random()
        if kind < 0.55:
            values = yaml.safe_load(files[self.file])
            values, edits = odd_values(values, self.file, key, number, keep)
            return self.written(values), edits
        if kind < 0.8:
            return {self.file: hostile_yaml(rng, files[self.file])}, []
        return super().spoiled(files, key, number, keep)


class Stored(Artefact):
    """A folder with a JSON file, ``record``, that describes the others."""

    record: str
    entries = "arrays"  #: of it that describe arrays: one of each, by name, or that of one alone
    checksums = False  #: whether arrays are refused for their checksums when they are read

    def spoiled(self, files: Files, key: str, number: int, keep: Keep) -> Edited:
        """Damage any file, overwrite elements of arrays, or put other values into the JSON file."""
        kind = case_rng(key, number, "kind").random()
        if kind < 0.3 and self.record in files:
            values = json.loads(files[self.record])
            values, edits = odd_values(values, self.record, key, number, keep)
            return {**files, self.record: json.dumps(values).encode()}, edits
        if kind < 0.6 and any(name.endswith(".npy") for name in files):
            return overwritten(files, key, number, keep)
        return super().spoiled(files, key, number, keep)

    def agreeing(self, files: Files) -> dict[str, bytes]:
        try:
            values = json.loads(files[self.record])
            describe_files(values[self.entries], files, checksums=self.checksums)
        except Exception:  # damaged itself
            return dict(files)
        return {**files, self.record: json.dumps(values).encode()}


def small_graph(num_vertices: int = 60, num_edges: int = 300) -> Graph:
    """Return a graph of random edges, half of whose vertices train."""
    rng, v = np.random.default_rng(0), np.arange(num_vertices, dtype=np.int32)
    ends = np.sort(rng.integers(0, num_edges + 1, num_vertices - 1))
    return Graph(
        name="fuzzed",
        indptr=np.concatenate([[0], ends, [num_edges]]).astype(np.int64),
        indices=rng.integers(0, num_vertices, num_edges, dtype=np.int32),
        features=np.zeros((num_vertices, 5), np.float32),
        feature_dtype="float32",
        labels=np.zeros(num_vertices, np.int64),
        num_classes=1,
        split=Split(train_idx=v[::2], valid_idx=v[1::4], test_idx=v[3::4]),
        origin=Origin(content="0" * 32),
    )


def describe_files(entries: dict[str, Any], files: Files, *, checksums: bool = False) -> None:
    """Write into entries of arrays, or the only one, what their files or archives say."""
    for name, content in files.items():
        if name.endswith(".npz"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for info in archive.infolist():
                    if entry := entries.get(info.filename.removesuffix(".npy")):
                        entry.update(bytes=info.file_size, crc32=info.CRC)
        entry = entries if "bytes" in entries else entries.get(name.removesuffix(".npy"))
        found = _FORM.search(content[:256])
        if name.endswith(".npy") and entry and found:
            shape = [int(axis) for axis in found[2].split(b",") if axis.strip()]
            entry.update(bytes=len(content), shape=shape)
            if checksums:
                first = 10 + int.from_bytes(content[8:10], "little")
                entry["crc32"] = zlib.crc32(content[first:])
            if "dtype" in entry:
                entry["dtype"] = str(np.dtype(found[1].decode()))


def overwritten(files: Files, key: str, number: int, keep: Keep) -> Edited:
    """Overwrite elements of arrays, which no size and no header shows."""
    changed, edits = dict(files), []
    arrays = [name for name in sorted(files) if name.endswith(".npy")]
    for place in range(case_rng(key, number, "edits").choice((1, 1, 1, 2, 3, 8))):
        rng = case_rng(key, number, place)
        name = rng.choice(arrays)
        if keep is None or place in keep:
            changed[name] = npy_element(changed[name], rng)
            edits.append(f"{place}: {name}")
    return changed, edits


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder; archives have no times."""
    found = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        found[str(path.relative_to(folder))] = content = path.read_bytes()
        if path.suffix == ".npz":
            source, packed = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
            with zipfile.ZipFile(packed, "w") as copy:
                for info in source.infolist():
                    copy.writestr(zipfile.ZipInfo(info.filename), source.read(info))
            found[str(path.relative_to(folder))] = packed.getvalue()
    return found


def odd_values(values: Any, name: str, key: str, number: int, keep: Keep) -> tuple[Any, list[str]]:
    """Put other values here and there into nested lists and mappings, and say which.

    Every edit has random numbers of its own, so that one can be left out and the others stay.
    """
    edits = []
    for place in range(case_rng(key, number, "edits").choice((1, 1, 2, 4))):
        rng = case_rng(key, number, place)
        holder, index = rng.choice(list(_places(values)))
        if keep is None or place in keep:
            holder[index] = deepcopy(rng.choice(_VALUES))  # later edits may change it
            edits.append(f"{place}: {name}")
    return values, edits


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in nested lists and mappings, as what holds it and its index or key."""
    if not isinstance(value, (dict, list)):
        return
    for index in value if isinstance(value, dict) else range(len(value)):
        yield value, index
        yield from _places(value[index])


def check_shown(draw: Callable[[], str], show: Callable[[Any], None]) -> None:
    """Look at what a picture and a table print."""
    from rich.console import Console

    stream = io.StringIO()
    show(Console(file=stream))
    if "\x1b" in stream.getvalue() or "\x1b" in draw():
        raise WrongResultError("control characters are shown")


def home_of(folder: Path) -> dict[str, bytes]:
    return {name: each for name, each in files_of(folder).items() if name.startswith("graphs/")}


MODELS: dict[str, type[ModelConfig]] = {"gcn": GCN, "sage": GraphSAGE, "gat": GAT, "gin": GIN}
SPLITS = ("train", "valid", "test")
_BATCH = 16


def check_graph(graph: Graph) -> None:
    n = graph.num_vertices
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    wrong = {
        "indptr": indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any(),
        "indices": len(indices) and not 0 <= indices.min() <= indices.max() < n,
        "features": graph.features.shape[0] != n or graph.features.ndim != 2,
        "feature_dtype": FEATURE_DTYPES.get(graph.feature_dtype) != graph.features.dtype,
        "labels": len(graph.labels) != n or not _labels_hold(graph),
        "metric": graph.metric not in METRICS,
    }
    for part in SPLITS if graph.num_classes else ():  # else nothing is labelled, nor split
        ids = np.asarray(getattr(graph, f"{part}_idx"))
        wrong[f"{part}_idx"] = not len(ids) or not 0 <= ids.min() <= ids.max() < n
    if graph.feature_dtype not in ("bfloat16", *MAX_QUANTIZED):
        wrong["finite features"] = not np.isfinite(graph.features).all()
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise WrongResultError(f"{name} of the store cannot be right")


def _labels_hold(graph: Graph) -> bool:
    if graph.regression:  # NaN if one is unknown
        return not np.isinf(graph.labels).any()
    low, high = int(graph.labels.min()), int(graph.labels.max())
    if graph.labels.ndim == 2:
        return graph.labels.shape[1] == graph.num_classes and 0 <= low <= high <= 1
    return -1 <= low <= high < graph.num_classes


def train_step(graph: Graph, model_name: str) -> None:
    if not graph.num_classes:
        return  # for its edges
    graph.check_features()  # as a run does before it builds a model
    torch.manual_seed(0)
    heads: dict[str, Any] = {"num_heads": 2} if model_name == "gat" else {}
    config = MODELS[model_name](hidden=4, num_layers=2, **heads)
    model = config.build(num_features=graph.num_features, num_classes=graph.num_classes)
    train_on(graph, model)
    # torch's own makes each case's process import its compiler, for a second.
    Sgd(lr=0.01).build(model).step()


def batch_of(graph: Graph) -> MiniBatch:
    return NeighborSampler(graph, fanouts=[3, 2]).sample(np.asarray(graph.train_idx[:_BATCH]), 0)


def train_on(graph: Graph, model: TrainableModel) -> None:
    batch = batch_of(graph)
    inputs = FeatureLoader(graph, model, num_threads=1).load(batch)
    seed_loss(graph, model(batch, inputs), batch.seeds).backward()


def sample_all(graph: Graph) -> None:
    """Draw a mini-batch with every sampler, and look at the ids in it."""
    seeds = np.asarray(graph.train_idx[:_BATCH])
    samplers = (
        NeighborSampler(graph, fanouts=[2, 2], replace=True),
        NeighborSampler(graph, fanouts=[-1, -1], num_threads=2),
        LaborSampler(graph, fanouts=[2, 2], num_threads=2),
        LayerSampler(graph, layer_sizes=[5, 5]),
    )
    for sampler in samplers:
        vertices = sampler.sample(seeds, 1).input_vertices
        if not 0 <= vertices.min() <= vertices.max() < graph.num_vertices:
            raise WrongResultError(f"{type(sampler).__name__} drew a vertex that is none")
