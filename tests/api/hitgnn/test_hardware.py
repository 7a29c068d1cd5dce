"""HitGNN's Listing 1: FPGAs, a platform, a design, and training on it."""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gnnscale import api
from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design.design import read_design
from gnnscale.planner.fpga_board import board


@pytest.fixture(scope="module", autouse=True)
def compiled_once(stores: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNNSCALE_HOME", str(stores))
        yield


LISTING = {"SLR": 4, "DSP": 3072, "LUT": 423_000, "URAM": 320, "BW": 19.25}


def model(hidden: int = 16, architecture: str = "GCN") -> Any:
    return api.gnn_model(api.gnn_computation(architecture), api.gnn_parameters(2, hidden))


def platform(count: int = 1, **figures: Any) -> api.FpgaPlatform:
    fpga = api.fpga_metadata(**LISTING | figures)
    return api.platform_metadata(BW=205, FPGA=[fpga] * count, FPGA_connect=16)


def design(options: Any = None, **figures: Any) -> Any:
    return api.generate_design(model(), "neighbor", platform(**figures), options=options)


def of_cards(*names: str, link: float = 16) -> api.FpgaPlatform:
    return api.platform_metadata(BW=1, FPGA=list(map(board, names)), FPGA_connect=link)


def test_an_fpga_has_the_figures_of_the_listing() -> None:
    found = api.fpga_metadata(**LISTING)
    assert [die.name for die in found.dies] == ["SLR0", "SLR1", "SLR2", "SLR3"]
    assert {die.has.luts for die in found.dies} == {423_000}
    assert {die.has.brams for die in found.dies} == {672}
    assert found.bandwidth == 77e9
    assert found.dies[2].bank == "DDR[2]"
    assert set(found.sources.values()) == {"argument of fpga_metadata", "that of the U250"}
    assert platform(4).link_share == 1
    assert platform(16).link_share == pytest.approx(205 / 256)
    assert platform(2).boards[1].link_bandwidth == 16e9
    assert api.fpga_metadata("u280") == board("u280")


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: api.fpga_metadata(**LISTING | {"DSP": None}), "fpga_metadata: DSP: required"),
        (lambda: api.fpga_metadata(**LISTING | {"LUT": 0}), "has.luts=0: expected 0.001 to"),
        (lambda: api.fpga_metadata(**LISTING | {"BW": -1}), "bandwidth=-1e+09: expected 0.001"),
        (lambda: api.fpga_metadata(**LISTING | {"SLR": 99}), "SLR=99: expected 1 to 16"),
        (lambda: api.fpga_metadata(**LISTING, MHz=0), "board.clock_hz=0"),
        (lambda: api.fpga_metadata("u99"), "board=u99: allowed are"),
        (lambda: api.fpga_metadata("u250", DSP=1), "expected no DSP"),
        (lambda: api.fpga_metadata("u250", MHz=200), "expected no MHz"),
        (lambda: of_cards(), "FPGA=[]: expected a list"),
        (lambda: api.platform_metadata("cpu", BW=1), "expected either devices"),
        (lambda: of_cards("u250", "u50"), "FPGA: expected equal cards"),
        (lambda: of_cards("u250", link=0), "FPGA_connect=0: expected GB per second"),
        (lambda: api.platform_metadata(split=[1]), "split: expected none without devices"),
        (lambda: api.generate_design("gcn", "neighbor", platform()), "model=gcn: expected the"),
        (lambda: api.generate_design(model(), "neighbor", "cpu"), "platform=cpu: expected"),
        (lambda: api.generate_design(model(), "nobody", platform()), "sampler=nobody"),
        (lambda: design(options={"n": 2}), "options: n: expected seed, mode, system"),
        (lambda: design(DSP=100), "no design fits: n=1, m=16 and the shell take"),
        (lambda: api.init("file"), "bitstream=file: expected the result of generate"),
    ],
)
def test_what_is_not_allowed_is_named_in_one_line(call, message) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def designed(tmp_path_factory: pytest.TempPathFactory) -> tuple[api.Bitstream, api.Runtime, Path]:
    folder = tmp_path_factory.mktemp("design") / "u250"
    made = api.generate_design(
        model(), {"fanouts": [4, 4]}, platform(2), batch_size=64, directory=folder
    )
    return (*made, folder)


@pytest.mark.long
def test_a_design_is_written_for_vitis_and_the_host(designed) -> None:
    bitstream, runtime, folder = designed
    assert read_design(folder) == bitstream.design
    assert (folder / "connectivity.cfg").is_file()
    assert (folder / "estimate.html").is_file()
    assert runtime.directory == folder
    assert len(runtime.platform.config.devices) == 2
    assert runtime.options == {"batch_size": 128, "sampler": "neighbor", "sampler.fanouts": [4, 4]}
    api.init(bitstream)
    *_, folder = designed
    with pytest.raises(
        ConfigError, match=r"^directory=.*/u250: holds include, which would be over"
    ):
        api.generate_design(model(), {"fanouts": [4, 4]}, platform(2), directory=folder)
    bitstream, *_ = designed
    with pytest.raises(ConfigError, match=r"bitstream=/nowhere/a.xclbin: no such file"):
        api.init(bitstream._replace(file=Path("/nowhere/a.xclbin")))


@pytest.mark.integration
def test_training_starts_on_the_design(designed, tmp_path: Path) -> None:
    bitstream, runtime, _ = designed
    graph = api.load_input_graph(
        "planted_partition", num_vertices=600, num_edges=4000, num_classes=3
    )
    api.init(bitstream)
    training = api.start_training(runtime, graph, epochs=1, directory=tmp_path / "run")
    assert training.figures == "csim"
    shares = training.result.plan.shares
    assert [share.device.kind for share in shares] == ["fpga", "fpga"]
    assert {share.device.m for share in shares} == {bitstream.design.m}
    with pytest.raises(ConfigError, match="platform: expected None"):
        api.start_training(runtime, graph, api.platform_metadata("cpu"))


@pytest.mark.integration
def test_a_layer_of_ones_own_brings_its_header(tmp_path: Path, monkeypatch) -> None:
    folder = Path(__file__).parents[3] / "examples" / "fpga"
    monkeypatch.syspath_prepend(str(folder))
    layer = import_module("max_pool").MaxPool
    own = api.gnn_model(api.gnn_computation("customize", layer), api.gnn_parameters(2, 16))
    bitstream, _ = api.generate_design(
        own, {"fanouts": [10, 10]}, platform(), batch_size=64, directory=tmp_path / "design"
    )
    assert bitstream.header == folder / "max_pool.hpp"
    copied = tmp_path / "design" / "layer.hpp"
    assert copied.read_bytes() == (folder / "max_pool.hpp").read_bytes()
    assert "HEADER := layer.hpp" in (tmp_path / "design" / "design.mk").read_text()
    sys.modules.pop("max_pool")
