from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from gnnscale import Observer
from gnnscale.cache import CachePlannerConfig
from gnnscale.core.config.typed import typed
from gnnscale.core.hardware import usable_cores
from gnnscale.data import GraphSource
from gnnscale.features import FeatureStoreConfig
from gnnscale.fpga_design import GenerateConfig
from gnnscale.nn import ModelConfig
from gnnscale.nn.losses import LossConfig
from gnnscale.nn.optim import OptimizerConfig
from gnnscale.partition import PartitionerConfig
from gnnscale.planner import DevicePlanConfig, device_plan
from gnnscale.planner.fpga_board import Board
from gnnscale.planner.platform import PlatformConfig
from gnnscale.planner.simulator import SimulateConfig
from gnnscale.report.doctor import DoctorConfig
from gnnscale.run.commands import EvaluateConfig, PartitionConfig, PrepareConfig
from gnnscale.run.config import RunConfig
from gnnscale.run.runtime_config import RuntimeConfig
from gnnscale.run.tasks import TaskConfig
from gnnscale.sampling import SamplerConfig
from gnnscale.training.launcher.launch import launch
from gnnscale.training.setup import open_run
from gnnscale.training.train import train

pytestmark = pytest.mark.integration

CONFIGS = Path(str(resources.files("gnnscale.configs")))
GROUPS: dict[str, type[Any]] = {
    **{"cache_planner": CachePlannerConfig, "dataset": GraphSource},
    **{"device_plan": DevicePlanConfig, "features": FeatureStoreConfig, "loss": LossConfig},
    **{"model": ModelConfig, "optimizer": OptimizerConfig, "partitioner": PartitionerConfig},
    **{"platform": PlatformConfig, "runtime": RuntimeConfig, "sampler": SamplerConfig},
    **{"task": TaskConfig, "board": Board},
}
#: Where the test data has an experiment's graph.
DATA = {"cora_gcn": "planetoid", "musae_sage": "musae_git/git_web_ml.zip"}
DATA |= {"tolokers_sage": "heterophilous"}
#: A graph for the others.
SMALL = ["dataset.num_vertices=500", "dataset.num_edges=3000"]


def names(group):
    return sorted(file.stem for file in (CONFIGS / group).glob("*.yaml"))


@pytest.fixture(autouse=True)
def hydra_is_set_up():
    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        yield


def test_every_folder_is_a_known_group():
    folders = {path.name for path in CONFIGS.iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == {*GROUPS, *("algorithm", "experiment", "hydra", "logger")}


@pytest.mark.parametrize("logger", [*names("logger"), "[mlflow,csv]"])
def test_every_logger_is_one_and_they_go_together(logger):
    expected = {"none": [], "[mlflow,csv]": ["mlflow", "csv"]}.get(logger, [logger])
    found = typed(compose("train", [f"logger={logger}"]), RunConfig).logger
    assert list(found.items()) == [(name, True) for name in expected]


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in GROUPS for name in names(group)]
)
def test_every_option_is_instantiated(group, name, monkeypatch):
    monkeypatch.setattr(device_plan, "find_all_gpus", lambda: 2)
    commands = {"platform": "simulate", "board": "generate", "partitioner": "partition"}
    command = commands.get(group, "train")
    options = compose(command, [f"{group}={name}"])
    for key in OmegaConf.missing_keys(options):
        OmegaConf.update(options, key, "some/path.py:Name")
    node = options[group]
    built = typed(node, GROUPS[group], group=group)
    assert isinstance(built, GROUPS[group])
    # A file lists every field of its class, so that each can be overridden without a plus sign.
    assert {key for key in node if key != "_target_"} == set(vars(built))


def test_commands_are_instantiated():
    assert typed(compose("train"), RunConfig).resume is None
    assert typed(compose("evaluate", ["run=x"]), EvaluateConfig).run == Path("x")
    assert typed(compose("prepare"), PrepareConfig).force is False
    assert typed(compose("partition"), PartitionConfig).num_parts == 4
    assert typed(compose("doctor"), DoctorConfig).calibrate is False
    assert typed(compose("simulate"), SimulateConfig).dataset is None
    assert typed(compose("generate"), GenerateConfig).report is None


def composed(experiment, *overrides):
    return compose("train", [f"experiment={experiment}", *overrides])


@pytest.mark.parametrize("algorithm", names("algorithm"))
def test_every_algorithm_is_instantiated(algorithm):
    node = compose("train", [f"algorithm={algorithm}", "device_plan=cpu_x4"])
    config = typed(node, RunConfig)
    assert (config.partitioner.algorithm == "none") == (algorithm == "hyscale")
    assert "algorithm" not in node
    # It sets nothing that an experiment sets, and goes with any.
    assert compose("train", ["experiment=cora_gcn", f"algorithm={algorithm}"]).epochs == 200


@pytest.mark.parametrize("experiment", names("experiment"))
def test_every_experiment_is_instantiated(experiment):
    options = composed(experiment)
    for key in OmegaConf.missing_keys(options):
        OmegaConf.update(options, key, "some/path")
    assert typed(options, RunConfig).epochs >= 1


class StepTaken(Exception):  # noqa: N818
    """Raised to end a run after its first step."""


class OneStep(Observer):
    def stepped(self, record):
        raise StepTaken


@pytest.fixture
def home(tmp_path, monkeypatch, write_figures):
    monkeypatch.setenv("GNNSCALE_HOME", str(write_figures(tmp_path)))


@pytest.mark.long
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("experiment", sorted(set(names("experiment")) - set(DATA)))
def test_every_other_experiment_takes_a_step_on_a_small_graph(experiment, tmp_path):
    """Its own graph is downloaded, or too large to generate in a test."""
    options = composed(experiment, "num_threads=1")
    options.dataset = compose("train", SMALL).dataset
    with pytest.raises(StepTaken):
        launch(typed(options, RunConfig), tmp_path, OneStep(), options={})


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("experiment", DATA)
def test_every_experiment_takes_a_step(experiment, tmp_path, test_data):
    raw = (test_data / DATA[experiment]).absolute()
    if not raw.exists():
        pytest.skip(f"GNNSCALE_TEST_DATA: no {raw}")
    options = typed(composed(experiment, f"dataset.raw={raw}", "num_threads=1"), RunConfig)
    with pytest.raises(StepTaken):
        train(open_run(options, tmp_path, {}), OneStep())
