import gc
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from gnnscale.core.config.typed import typed
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.planner.platform import Platform

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("GNNSCALE_TEST_DATA", ROOT.parent / "shared" / "data")).absolute()
os.environ["GNNSCALE_TEST_DATA"] = str(DATA)
#: Second implementations of what the product has but one of; worker processes import them by name.
sys.path.insert(0, str(ROOT / "tests" / "fakes"))
# The fuzzer and the faults are no part of the package: they are imported as ``fuzz``, ``faults``.
sys.path.insert(1, str(ROOT / "scripts"))

#: Fixtures of command lines, of whole runs and of recorded runs, in tests/fakes.
pytest_plugins = ["command_fixtures", "report_fixtures", "run_fixtures"]

# Processes that tests start compile the package once, not each for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Processes of pytest-xdist share the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# Tests say what is right, not how fast it is: a busy machine fails none of them.
hypothesis.settings.register_profile("gnnscale", deadline=None)
hypothesis.settings.load_profile("gnnscale")


#: What CI may skip, since no package gives a machine a GPU, or the right to make control groups. It
#: sets GNNSCALE_TEST_NO_SKIPS, and a test that is skipped for any other reason fails: a check that
#: is always skipped is none.
UNAVAILABLE = ("no CUDA device", "no control group can be made")


def pytest_collection_finish() -> None:
    """Leave what is imported by then alone: looking through it again and again takes a tenth."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let what is skipped fail where nothing is to be skipped."""
    report = yield
    # What is expected to fail counts as skipped, too, and has no such place and reason.
    if isinstance(report.longrepr, tuple) and "GNNSCALE_TEST_NO_SKIPS" in os.environ:
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in UNAVAILABLE:
            report.outcome = "failed"
            report.longrepr = f"GNNSCALE_TEST_NO_SKIPS: skipped, since: {reason}"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that none of it is alone at the end.

    Integration tests come first, then files that start processes.
    """
    processes = {ROOT / "tests" / name for name in ("training", "cli")}

    def place(item: pytest.Item) -> tuple[bool, bool]:
        integration = item.get_closest_marker("integration") is not None
        return not integration, processes.isdisjoint(item.path.parents)

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def away_from_the_sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in an empty folder, so that Python started by a test finds the installed package."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("cwd"))
    yield
    os.chdir(before)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Make initial weights and random tensors the same in every run."""
    torch.manual_seed(0)


class Clock:
    """Time that passes in sleep alone, and where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def took(self, run: Callable[[], Any]) -> tuple[Any, Any]:
        """Seconds that passed while ``run`` ran, to be compared, and what came of it."""
        start = self.now
        result = run()
        return pytest.approx(self.now - start), result


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The performance counter, which a test winds itself."""
    found = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: found.now)
    monkeypatch.setattr(time, "sleep", found.advance)
    return found


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real graphs."""
    if not DATA.is_dir():
        pytest.skip(f"no real graphs in {DATA} (GNNSCALE_TEST_DATA)")
    return DATA


@pytest.fixture(scope="session")
def write_figures() -> Callable[[Path], Path]:
    """Write figures of a machine into a ``GNNSCALE_HOME``, so that no run there measures this one.

    Where others are busy, as the other processes of pytest-xdist are, a measurement is not kept:
    every run would begin with one.
    """
    published = resources.files("gnnscale.configs") / "platform" / "epyc7763_a5000_x4.yaml"
    options = OmegaConf.create(published.read_text())
    assert isinstance(options, DictConfig)
    platform = typed(options, Platform)

    def write(home: Path) -> Path:
        home.mkdir(parents=True, exist_ok=True)
        platform.write(home / "platform.yaml")
        return home

    return write


@pytest.fixture(scope="session")
def csim_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``GNNSCALE_HOME`` for compiled kernels, which all processes of pytest-xdist share.

    With ``GNNSCALE_TEST_COMPILED``, it is that folder, which several runs of the tests may share.
    """
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    home = Path(os.environ.get("GNNSCALE_TEST_COMPILED", shared / "csim-home")).absolute()
    for name in ("csim", "cuda"):
        (home / name).mkdir(parents=True, exist_ok=True)
    return home


@pytest.fixture(scope="session")
def tiny_graph() -> Graph:
    """0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 3 <- nobody; 4 <- 4; features tell the vertex."""
    src, dst = np.array([[1, 0], [2, 0], [3, 1], [0, 2], [3, 2], [4, 4]]).T
    features = np.arange(5, dtype=np.float32)[:, None] * np.float32([1, 10])
    return from_arrays(
        (src, dst), features, np.arange(5) % 2, train_idx=np.arange(5), num_classes=2, name="tiny"
    )


@pytest.fixture(scope="session")
def random_graph() -> Callable[..., Graph]:
    """Build a graph of random edges, some of them repeated, in which some vertices have none."""

    def build(
        num_vertices=300, num_edges=3000, *, num_features=20, dtype=torch.float32, seed=0, **fields
    ) -> Graph:
        generator = np.random.default_rng(seed)
        # Products of uniform numbers: a few vertices have most of the edges.
        ends = generator.random((2, num_edges)) * generator.random((2, num_edges))
        src, dst = (ends * num_vertices).astype(np.int64)
        rows = generator.standard_normal((num_vertices, num_features), np.float32)
        features = torch.from_numpy(rows)
        if dtype == torch.uint8:
            features = features.abs() * 50
        labels = generator.integers(0, 5, num_vertices)
        everything = np.arange(num_vertices)
        return from_arrays(
            (src, dst), features.to(dtype), labels, train_idx=everything, num_classes=5, **fields
        )

    return build


@pytest.fixture
def leftovers() -> Callable[[Path], list[str]]:
    """Return what lies beside a store, hidden or not, apart from the store itself."""

    def find(store: Path) -> list[str]:
        return sorted(path.name for path in store.parent.iterdir() if path != store)

    return find
