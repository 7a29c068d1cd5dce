"""No public call changes the state of its process, or depends on it."""

import asyncio
import copy
import faulthandler
import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
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

import gnnscale
from gnnscale import api

pytestmark = pytest.mark.timeout(180)

FAKES = Path(__file__).parents[1] / "fakes"
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
        "collector": (gc.isenabled(), gc.get_threshold()),
        "threads": sorted(each.name for each in threading.enumerate()),
    }


def of_numpy() -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "errors": np.geterr(),
        "printing": np.get_printoptions(),
        "random": (kind, np.asarray(keys).tolist(), *rest),
        "Python's random": random.getstate(),
    }


def state() -> dict[str, Any]:
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


def graph() -> Any:
    given = arrays()
    return gnnscale.from_arrays(given.pop("edges"), given.pop("features"), **given)


def train(**given: Any) -> tuple[gnnscale.Result, dict[str, Any]]:
    with unchanged("from_arrays"):
        made = graph()
    watch, before = Watch(), of_hydra() | of_torch() | of_numpy()
    with unchanged("train"):
        run = gnnscale.train(made, **{"model": "sage", **SMALL, **given}, observers=[watch])
    assert [differences(before, each) for each in watch.seen] == [{}], "seen by an observer"
    loss, metrics = run.history[0].train_loss, (run.valid_metric, run.test_metric)
    return run, {"loss": loss, "metrics": metrics}


def use(directory: Path) -> dict[str, Any]:
    with unchanged("load"):
        run = gnnscale.load(directory)
    with unchanged("model"):
        model = run.model
    assert all(each.requires_grad for each in model.parameters())
    values = [each.detach().numpy().flatten() for each in model.state_dict().values()]
    found: dict[str, Any] = {"weights": np.concatenate(values)}
    for name in ("predict", "embeddings"):
        with unchanged(name):
            found[name] = getattr(run, name)()
    with unchanged("sampled"):
        found["sampled"] = run.predict([3, 1], what="logits", inference="sampled")
    with unchanged("evaluate"):
        found["evaluate"] = gnnscale.evaluate(run).metrics
    with unchanged("export"):
        run.export(directory / "exported.safetensors", force=True)
    with unchanged("api"):
        api.load_input_graph("planted_partition", num_vertices=50)
        api.gnn_model(api.gnn_computation("GCN"), api.gnn_parameters(L=2, hidden=8))
    made = graph()
    for workers in (0, 1):
        with unchanged(f"NeighborLoader of {workers} threads"):
            loader = gnnscale.NeighborLoader(made, [3, 2], batch_size=16, num_workers=workers)
            *_, batch = loader
        assert not batch.x.is_inference()
        found[f"batch {workers}"] = np.array(batch.x.tolist())
    return found


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
#: All ways, those at once that do not replace each other.
TOGETHER = (
    ("hydra", "no_grad", "bfloat16", "daemon"),
    ("float64", "autocast", "default meta", "numpy"),
    ("inference_mode", "meta", "deterministic", "warnings", "logging"),
)


@contextmanager
def in_state(ways: Sequence[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for way in ways:
            stack.enter_context(WAYS[way]())
        yield


@pytest.fixture(scope="module", autouse=True)
def module_home(tmp_path_factory: pytest.TempPathFactory, write_figures: Any) -> Iterator[None]:
    # What a library sets when it is imported for the first time is its own.
    pytest.importorskip("torch_geometric")
    folder = tmp_path_factory.mktemp("caller")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNNSCALE_HOME", str(write_figures(folder / "home")))
        patch.chdir(folder)
        yield


@pytest.fixture(scope="module")
def plain(module_home: None) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """A run in a program that sets nothing, what its training computed, and its use."""
    with unchanged("the first run of a process"):  # which starts the server of workers
        run, trained = train()
    return run.directory, trained, use(run.directory)


def check_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, each in expected.items():
        np.testing.assert_equal(found[name], each, err_msg=name)


@pytest.mark.integration
@pytest.mark.parametrize("ways", TOGETHER, ids=" ".join)
def test_a_program_in_any_state_trains_uses_the_run_and_keeps_it(ways, plain) -> None:
    with in_state(ways):
        run, found = train()
        used = use(run.directory)
    check_same(found, plain[1])
    check_same(used, plain[2])


@pytest.mark.integration
def test_a_module_of_the_program_is_what_it_is_in_training() -> None:
    """Its file sets torch's and NumPy's state, here and in workers, as it is imported."""
    file = f"{FAKES / 'state_modules.py'}"
    given = {
        "model": "custom",
        "options": {
            "model.module": f"{file}:OfDefaultType",
            "model.hidden": 8,
            "runtime.deterministic": True,
            "metrics": [f"{file}:right"],
        },
    }
    small = {name: each for name, each in SMALL.items() if name != "hidden"}
    made = graph()
    with unchanged("train"):
        run = gnnscale.train(made, **small, **given)
    with unchanged("load"):
        again = gnnscale.load(run.directory, module=f"{file}:OfDefaultType")
    expected = again.predict(what="logits")
    assert expected.dtype == np.float32
    with in_state(("float64", "no_grad", "inference_mode", "meta")):
        with unchanged("train"):
            found = gnnscale.train(made, **small, **given)
        with unchanged("load"):
            loaded = gnnscale.load(run.directory, module=f"{file}:OfDefaultType")
        with unchanged("predict"):
            logits = loaded.predict(what="logits")
    assert found.history[0].train_loss == run.history[0].train_loss
    np.testing.assert_array_equal(logits, expected)


class Raises(gnnscale.Observer):
    def __init__(self, raised: BaseException, event: str, epoch: int = 1) -> None:
        self.events: list[str] = []
        self.epochs: list[int] = []
        self._raised, self._event, self._epoch = raised, event, epoch

    def _happened(self, event: str, epoch: int | None = None) -> None:
        self.events.append(event)
        if event == self._event and epoch in (None, self._epoch):
            raise self._raised

    def started(self, run: Any) -> None:
        self._happened("started")

    def stepped(self, record: Any) -> None:
        self._happened("stepped", record.epoch)

    def finished_epoch(self, record: Any) -> None:
        self.epochs.append(record.epoch)
        self._happened("finished_epoch", record.epoch)

    def finished(self, run: Any) -> None:
        self._happened("finished")

    def close(self) -> None:
        self._happened("close")


class OwnError(Exception):
    pass


@pytest.mark.parametrize(
    ("event", "raised"),
    [
        ("finished_epoch", OwnError("mine")),
        *(
            pytest.param(event, raised, marks=pytest.mark.integration)
            for event, raised in (
                *(("started", gnnscale.ConfigError("mine")), ("stepped", KeyboardInterrupt())),
                *(("finished", SystemExit(4)), ("close", OwnError())),
            )
        ),
    ],
)
def test_an_exception_of_an_observer_reaches_the_program(event, raised, plain) -> None:
    raised.__cause__ = cause = ValueError("why")
    watch = Raises(raised, event)
    with unchanged("train"), pytest.raises(type(raised)) as found:
        gnnscale.train(graph(), **SMALL, observers=[watch])
    assert found.value is raised
    assert (raised.__cause__, raised.__context__) == (cause, None)
    assert found.traceback[-1].name == "_happened"
    assert watch.events[-1] == "close"


@pytest.mark.parametrize(
    ("plan", "event"),
    [("cpu", "finished_epoch"), pytest.param("cpu_x2", "stepped", marks=pytest.mark.integration)],
)
def test_an_observer_ends_training(plan: str, event: str, plain: Any) -> None:
    """As after the last epoch: the run is resumed from there, and learns what it would have."""
    watch = Raises(gnnscale.StopTraining("it will do"), event, epoch=2)
    given = {"options": {"device_plan": plan, "runtime.deterministic": True}}
    small = {name: each for name, each in SMALL.items() if name != "epochs"}
    done = gnnscale.train(graph(), **small, **given, epochs=50, observers=[watch])
    assert [each.epoch for each in done.history] == watch.epochs == [1, 2]
    assert watch.events[-2:] == ["finished", "close"]
    assert done.test_metric is not None
    summary = json.loads((done.directory / "summary.json").read_text())
    assert (summary["status"], summary["stopped_early"]) == ("completed", True)
    assert "stopped after epoch 2: by observers[0] (" in (done.directory / "train.log").read_text()
    assert gnnscale.evaluate(done).test_metric == done.test_metric
    again = gnnscale.train(graph(), **small, **given, epochs=3, resume=done.directory)
    whole = gnnscale.train(graph(), **small, **given, epochs=3)
    losses = [[each.train_loss for each in run.history] for run in (again, whole)]
    assert losses[0] == losses[1]


@pytest.mark.integration
def test_threads_train_at_the_same_time(plain: Any) -> None:
    directory, trained, expected = plain
    names = ("loggers", "hydra: resolvers", "numpy: errors")
    before = state()
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(gnnscale.train, graph(), **SMALL) for _ in range(2)]
        found = [each.result() for each in runs]
    assert not differences(before, state()), names
    assert {each.history[0].train_loss for each in found} == {trained["loss"]}
    for each in found:
        log = (each.directory / "train.log").read_text()
        assert log.count("epoch 1/1") == 1
    with ThreadPoolExecutor(1) as threads:
        check_same(threads.submit(use, directory).result(), expected)


@pytest.mark.integration
def test_a_running_event_loop_trains(plain: Any) -> None:
    async def main() -> dict[str, Any]:
        return train()[1]

    check_same(asyncio.run(main()), plain[1])
