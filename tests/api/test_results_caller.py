"""No public call changes the state of the process that calls it, and none depends on that state."""

import asyncio
import copy
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pytest
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.version import VersionBase
from omegaconf import OmegaConf
from omegaconf.basecontainer import BaseContainer
from torch import nn

import gnnscale
from gnnscale import api
from gnnscale.report.observers import Observers

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("own_home")]

SMALL: dict[str, Any] = {"epochs": 1, "hidden": 8, "fanouts": [3, 2], "batch_size": 32}


def of_hydra() -> dict[str, Any]:
    base = Singleton._instances.get(VersionBase)
    store = Singleton._instances.get(ConfigStore)
    return {
        "instances": {cls.__name__: id(each) for cls, each in Singleton._instances.items()},
        "version base": None if base is None else base.getbase(),
        "stored": None if store is None else sorted(store.repo),
        "resolvers": {name: id(each) for name, each in BaseContainer._resolvers.items()},
    }


def of_torch() -> dict[str, Any]:
    devices = ("cpu", "cuda")
    return {
        "type": torch.get_default_dtype(),
        "device": str(torch.get_default_device()),
        "threads": torch.get_num_threads(),
        "interop threads": torch.get_num_interop_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warns only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "random": torch.random.default_generator.get_state().tolist(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": [torch.is_autocast_enabled(each) for each in devices],
        "autocast types": [torch.get_autocast_dtype(each) for each in devices],
        "anomalies": torch.is_anomaly_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "oneDNN": torch.backends.mkldnn.enabled,
    }


def of_process() -> dict[str, Any]:
    root, package = logging.getLogger(), logging.getLogger("gnnscale")
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    mask = os.umask(0)
    os.umask(mask)
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": mask,
        "path": list(sys.path),
        "arguments": list(sys.argv),
        "hooks": [sys.excepthook, sys.unraisablehook, threading.excepthook, sys.exit],
        "streams": [id(sys.stdout), id(sys.stderr)],
        "recursion": sys.getrecursionlimit(),
        "signals": {each: signal.getsignal(each) for each in signal.valid_signals()},
        "masked": masked,
        "warnings": list(warnings.filters),
        "logging": [
            (each.level, list(each.handlers), each.propagate, each.disabled, list(each.filters))
            for each in (root, package)
        ],
        "logging off": logging.root.manager.disable,
        "start method": multiprocessing.get_start_method(allow_none=True),
        "faulthandler": faulthandler.is_enabled(),
        "locale": locale.setlocale(locale.LC_ALL, None),
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "threads": sorted(each.name for each in threading.enumerate()),
    }


def of_numpy() -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state()
    return {
        "errors": np.geterr(),
        "printing": np.get_printoptions(),
        "random": (kind, np.asarray(keys).tolist(), *rest),
        "Python's random": random.getstate(),
    }


def state() -> dict[str, Any]:
    """Return all state of the process and of this thread that a library may touch."""
    parts = {"hydra": of_hydra(), "torch": of_torch(), "process": of_process(), "numpy": of_numpy()}
    return {f"{part}: {name}": each for part, of in parts.items() for name, each in of.items()}


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: (each, after[name]) for name, each in before.items() if after[name] != each}


@contextmanager
def unchanged(what: str) -> Iterator[None]:
    before = state()
    yield
    changed = differences(before, state())
    assert not changed, f"{what} changed {', '.join(changed)}: {str(changed)[:500]}"


class Watch(gnnscale.Observer):
    """Sees the state of the program in the middle of a run."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def finished_epoch(self, record: Any) -> None:
        self.seen.append(of_hydra() | of_torch() | of_numpy())


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    ids = np.arange(90)
    split = {"train_idx": ids[:50], "valid_idx": ids[50:70], "test_idx": ids[70:]}
    rows = rng.standard_normal((90, 6)).astype(np.float32)
    edges = tuple(rng.integers(0, 90, (2, 400)))
    return {"edges": edges, "features": rows, "labels": rng.integers(0, 3, 90), **split}


class Own(nn.Module):
    """A module of the program, with batch normalization and a tensor of torch's default type."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = nn.Linear(in_channels, hidden_channels)
        self.norm = nn.BatchNorm1d(hidden_channels)
        self.second = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.first(x)).relu()
        sums = torch.zeros(len(h), h.shape[1]).index_add(0, edge_index[1], h[edge_index[0]])
        return self.second(h + sums)


def call_all(train: bool = True) -> dict[str, Any]:
    """Make every public call, each of which leaves the state as it was; return what they return."""
    given = arrays()
    with unchanged("from_arrays"):
        graph = gnnscale.from_arrays(given.pop("edges"), given.pop("features"), **given)
    watch, before = Watch(), of_hydra() | of_torch() | of_numpy()
    with unchanged("train"):
        run = gnnscale.train(graph, "sage", **SMALL, observers=[watch])
    assert [differences(before, each) for each in watch.seen] == [{}], "seen by an observer"
    with unchanged("load"):
        run = gnnscale.load(run.directory)
    found: dict[str, Any] = {"loss": run.history[0].train_loss}
    with unchanged("model"):
        model = run.model
    found["weights"] = np.concatenate([each.flatten() for each in _values(model)])
    assert all(each.requires_grad for each in model.parameters())
    for name in ("predict", "embeddings"):
        with unchanged(name):
            found[name] = getattr(run, name)()
    with unchanged("sampled"):
        found["sampled"] = run.predict([3, 1], what="logits", inference="sampled")
    with unchanged("evaluate"):
        found["evaluate"] = gnnscale.evaluate(run).metrics
    with unchanged("export"):
        run.export(run.directory / "exported.safetensors")
    with unchanged("api"):
        api.load_input_graph("planted_partition", num_vertices=50)
        api.gnn_model(api.gnn_computation("GCN"), api.gnn_parameters(L=2, hidden=8))
    with unchanged("NeighborLoader"):
        for workers in (0, 1):
            loader = gnnscale.NeighborLoader(graph, [3, 2], batch_size=16, num_workers=workers)
            with unchanged("a batch"):
                batches = list(loader)
            # Rows are normal tensors of the processor.
            found[f"batch {workers}"] = np.array(batches[-1].x.tolist())
            assert not batches[-1].x.is_inference()
    return found


def _values(model: nn.Module) -> list[Any]:
    return [each.detach().numpy() for each in model.state_dict().values()]


def call_of_own_module() -> dict[str, Any]:
    """Make the calls that build and compute a module of the program."""
    given = arrays()
    graph = gnnscale.from_arrays(given.pop("edges"), given.pop("features"), **given)
    own = {each: SMALL[each] for each in ("epochs", "hidden", "fanouts", "batch_size")}
    with unchanged("train"):
        run = gnnscale.train(graph, Own, **own, options={"model.form": "pyg"})
    with unchanged("load"):
        run = gnnscale.load(run.directory, module=Own, arguments={"hidden_channels": 8})
    with unchanged("predict"):
        return {"predict": run.predict(what="logits"), "loss": run.history[0].train_loss}


@contextmanager
def inside_hydra() -> Iterator[None]:
    """Be a Hydra application of an older version, with a resolver of the name of ours."""
    kept = Singleton._instances, BaseContainer._resolvers
    Singleton._instances = dict(kept[0])
    BaseContainer._resolvers = dict(kept[1])
    for cls in (HydraConfig, VersionBase):
        Singleton._instances.pop(cls, None)
    Singleton._instances[ConfigStore] = copy.deepcopy(kept[0][ConfigStore])
    try:
        OmegaConf.register_new_resolver("usable_cores", lambda: 77, replace=True)
        OmegaConf.register_new_resolver("now", lambda _: "noon", replace=True)
        ConfigStore.instance().store("train", {"lr": 3})
        with hydra.initialize_config_dir(os.getcwd(), version_base="1.2"):
            config = hydra.compose("train", return_hydra_config=True)
            HydraConfig.instance().set_config(config)
            yield
            assert HydraConfig.get() is HydraConfig.instance().cfg.hydra
            assert OmegaConf.create({"a": "${usable_cores:}"}).a == 77
    finally:
        Singleton._instances, BaseContainer._resolvers = kept


@contextmanager
def set_by(setter: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    setter(value)
    try:
        yield
    finally:
        setter(before)


@contextmanager
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextmanager
def numpy_raises() -> Iterator[None]:
    with np.errstate(all="raise"):
        yield


@contextmanager
def without_streams() -> Iterator[None]:
    """Be a daemon, which has no standard streams."""
    kept = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = kept


@contextmanager
def logging_all() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)


WAYS: dict[str, Callable[[], Any]] = {
    "hydra": inside_hydra,
    "float64": lambda: set_by(torch.set_default_dtype, torch.float64, torch.float32),
    "bfloat16": lambda: set_by(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "meta": lambda: torch.device("meta"),
    "default meta": lambda: set_by(torch.set_default_device, "meta", None),
    "deterministic": lambda: set_by(torch.use_deterministic_algorithms, True, False),
    "numpy": numpy_raises,
    "warnings": warnings_are_errors,
    "daemon": without_streams,
    "logging": logging_all,
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, write_figures: Any) -> dict[str, Any]:
    """What all calls return in a program that sets nothing."""
    folder = tmp_path_factory.mktemp("plain")
    patch = pytest.MonkeyPatch()
    patch.setenv("GNNSCALE_HOME", str(write_figures(folder / "home")))
    patch.chdir(folder)
    # What a library sets when it is imported for the first time is its own.
    pytest.importorskip("torch_geometric")
    try:
        gnnscale.train(api.load_input_graph("planted_partition", num_vertices=60), **SMALL)
        return call_all()
    finally:
        patch.undo()


def check_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, each in expected.items():
        same = np.array_equal(found[name], each) if isinstance(each, np.ndarray) else None
        assert found[name] == each if same is None else same, name


@pytest.mark.parametrize("way", WAYS)
def test_calls_keep_the_state_and_do_not_depend_on_it(way: str, expected: dict[str, Any]) -> None:
    with WAYS[way]():
        found = call_all()
    check_same(found, expected)
