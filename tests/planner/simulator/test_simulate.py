import io
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from card_figures import RATES
from hydra import compose, initialize_config_module
from one_line import one_line
from rich.console import Console
from round_figures import platform

from gnnscale.core import gpu as nvml
from gnnscale.core.config.typed import typed
from gnnscale.core.errors import ConfigError
from gnnscale.data.synthetic import RMat
from gnnscale.planner import Accelerator, Cuda
from gnnscale.planner.cuda_spec import CardRates, load_or_measure_rates
from gnnscale.planner.device_spec import Efficiency
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.platform import Platform
from gnnscale.planner.simulator import ScalingCurve, SimulateConfig, SimulatedRun, simulate
from gnnscale.report.simulate import describe, draw, print_scaling
from gnnscale.sampling import LayerSampling


def composed(command: str, *overrides: str) -> Any:
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        return compose(command, list(overrides))


@cache
def config(*overrides: str) -> SimulateConfig:
    return typed(composed("simulate", *overrides), SimulateConfig)


@pytest.fixture(scope="module")
def figure_9() -> ScalingCurve:
    return simulate(config("accelerators=[1,4,12,16]"))


def speedups(scaling: ScalingCurve) -> dict[int, float]:
    return {each.num_accelerators: scaling.speedup(each) for each in scaling.results}


@pytest.mark.long
def test_host_memory_limits_accelerators_alone() -> None:
    scaling = simulate(config("hybrid=false"))
    found = speedups(scaling)
    assert list(found) == [1, 2, 4, 8, 12, 16]
    assert (found[8], found[12]) == pytest.approx((8, 12), rel=0.05)
    # 205 GB/s feed 12.8 links of 16 GB/s.
    assert found[16] < 13
    assert [each.bottleneck for each in scaling.results] == ["transfer"] * 5 + ["load"]


@pytest.mark.long
def test_the_processor_trains_too_as_in_figure_9(figure_9: ScalingCurve) -> None:
    assert figure_9.hybrid
    one, four, twelve, sixteen = figure_9.results
    assert [each.planned.plan.shares[0].device.kind for each in figure_9.results] == ["cpu"] * 4
    assert one.planned.plan.split[0] / 1024 > four.planned.plan.split[0] / 4096 > 0
    # Host memory starts to saturate above 12 accelerators (section VI-D).
    assert twelve.epoch_s < 0.5 * four.epoch_s
    assert 0.95 * twelve.epoch_s < sixteen.epoch_s
    # On ogbn-products, whose steps are bound by the link, GCN scales least.
    products = simulate(config("accelerators=[1,12]", "graph=products"))
    assert products.speedup(products.results[1]) < figure_9.speedup(twelve)
    alone = simulate(config("accelerators=[16]", "hybrid=false")).results[0]
    *_, hybrid = figure_9.results
    assert hybrid.planned.plan.split[0] == 0
    assert hybrid.step_s == pytest.approx(alone.step_s, rel=0.01)


@pytest.mark.long
def test_published_rates_are_a_stated_part_of_the_peak() -> None:
    options = config("accelerators=[1]", "hybrid=false")
    assert isinstance(options.platform, Platform)
    peak = replace(options.platform, efficiency=None)
    parts = Efficiency(processor=0.5, memory=0.25, accelerator=0.1, link=0.75)
    scaled = replace(peak, efficiency=parts).effective()
    of_peak = {"macs_per_s": 0.5, "aggregate_bandwidth": 0.5, "memory_bandwidth": 0.25}
    for name, part in (of_peak | {"sampled_edges_per_s": 1}).items():
        before, after = (getattr(each.processor.rates, name) for each in (peak, scaled))
        assert after == [part * rate for rate in before]
    (u250,) = scaled.devices(1)[1:]
    assert isinstance(u250, Accelerator)
    assert (u250.macs_per_s, u250.memory_bandwidth) == pytest.approx((61.44e9, 7.7e9))
    assert u250.link_bandwidth == pytest.approx(12e9)
    # Once only.
    assert scaled.effective() == scaled
    slow_link = replace(parts, memory=1.0, accelerator=1.0)
    found = simulate(replace(options, platform=replace(peak, efficiency=slow_link)))
    assert found.efficiency == slow_link
    at_peak = simulate(replace(options, platform=peak))
    assert at_peak.efficiency is None
    # A step is bound by the link.
    slower = found.results[0].step_s / at_peak.results[0].step_s
    assert slower == pytest.approx(1 / 0.75, rel=0.01)


@pytest.mark.long
def test_steps_of_mag240m_are_bound_by_the_link() -> None:
    one = simulate(config("accelerators=[1]", "hybrid=false")).results[0]
    size = PUBLISHED["mag240m"].size([25, 10], 1024)
    features = size.vertices[0] * 756 * 4 / 12e9
    assert features < one.step_s < 1.1 * features
    # Of 1,086.3 mini-batches, the last one is smaller.
    assert one.epoch_s == pytest.approx(1_112_392 / 1024 * one.step_s)
    # What the processor brings is no more than in section VI-F: up to 1.33x.
    for graph, model in (("products", "gcn"), ("papers100m", "sage")):
        overrides = (f"graph={graph}", f"model={model}", "accelerators=[4]")
        alone, hybrid = (
            simulate(config(*overrides, f"hybrid={each}")).results[0] for each in ("false", "true")
        )
        assert 1.02 < alone.epoch_s / hybrid.epoch_s < 1.33


@pytest.mark.long
def test_published_machines() -> None:
    for machine, graph in (("epyc7763_a5000_x4", "products"), ("epyc7763_u250_x4", "papers100m")):
        options = config(f"platform={machine}", f"graph={graph}", "accelerators=[0,4]")
        assert isinstance(options.platform, Platform)
        assert options.platform.num_accelerators == 4
        assert options.platform.efficiency is not None
        alone, hybrid = simulate(options).results
        assert len(hybrid.planned.plan.shares) == 5
        assert hybrid.planned.plan.batch_size == 4096
        assert hybrid.mteps > alone.mteps > 0


HITGNN = ("graph=reddit", "model.hidden=128", "accelerators=[4]")


@cache
def one(*overrides: str) -> SimulatedRun:
    (found,) = simulate(config(*HITGNN, *overrides)).results
    return found


@pytest.mark.long
@pytest.mark.parametrize("system", ["distdgl", "pagraph", "p3"])
def test_figures_of_hitgnns_systems_agree(system: str) -> None:
    found = one(f"system={system}")
    size = PUBLISHED["reddit"].size([25, 10], 1024)
    # Every step has four mini-batches; the epoch has all vertices.
    steps = math.ceil(232_965 / 1024 / 4)
    assert found.epoch_s == pytest.approx(steps * found.step_s)
    per_second = math.ceil(232_965 / 1024) / found.epoch_s
    assert found.nvtps == pytest.approx(size.num_vertices * per_second)
    assert found.mteps == pytest.approx(size.num_edges * per_second / 1e6)
    # Two hundred and five GB/s of the host, and four times 77.
    assert found.bandwidth_efficiency == pytest.approx(found.nvtps / 513)
    assert found.energy_j == pytest.approx(4 * 45 * found.epoch_s)
    assert found.planned is None


@pytest.mark.long
def test_hitgnns_optimisations_and_epochs() -> None:
    more = (("balance=false", "direct=false"), ("direct=false",), ())
    baseline, balanced, both = (one("system=distdgl", *each).epoch_s for each in more)
    assert baseline > balanced > both
    # An epoch is the system's own unless it is given.
    trained = one("system=distdgl", "epoch=training").epoch_s
    assert both / trained == pytest.approx(232_965 / 153_932, rel=0.02)
    assert one("system=distdgl", "epoch=all").epoch_s == both
    assert one("epoch=all").epoch_s / one().epoch_s == pytest.approx(232_965 / 153_932)


@pytest.mark.long
def test_degrees_that_are_here_take_the_place_of_the_skew(tmp_path: Path) -> None:
    file = tmp_path / "degrees.npy"
    # A hundred neighbours of each vertex, none of them hot: mini-batches are larger.
    np.save(file, np.full(232_965, 100))
    even = one("system=pagraph", f"degrees={file}")
    assert even.step_s > 1.5 * one("system=pagraph").step_s
    with pytest.raises(ConfigError, match=r"expected integers \[716847\]"):
        simulate(config("graph=yelp", f"degrees={file}"))


@pytest.mark.long
def test_a_graph_that_is_here(tmp_path: Path) -> None:
    sizes = ("dataset.num_vertices=20000", "dataset.num_edges=100000")
    node = composed("prepare", "dataset=rmat", f"dataset.store={tmp_path / 'store'}", *sizes)
    dataset = typed(node.dataset, RMat, group="dataset")

    def simulated(*overrides: str) -> ScalingCurve:
        return simulate(replace(config(*overrides, "batch_size=64"), dataset=dataset))

    scaling = simulated("accelerators=[1,2]")
    assert scaling.graph == "rmat"
    assert speedups(scaling)[2] > 1
    systems = ("system=pagraph", "system=distdgl")
    cached, parts = (simulated(each, "accelerators=[4]").results[0] for each in systems)
    # RMAT's degrees are skewed: a quarter of its vertices are more of a mini-batch's inputs
    # than METIS's parts have.
    assert cached.nvtps > parts.nvtps > 0
    steps = math.ceil(dataset.open().num_vertices / 64 / 4)
    assert cached.epoch_s == pytest.approx(steps * cached.step_s, rel=0.02)


@pytest.mark.long
def test_options_and_simulations_that_cannot_be() -> None:
    for override, message in (
        ("graph=cora", "graph=cora: allowed are reddit, yelp, amazon, products, papers100m"),
        ("system=dgl", "system=dgl: allowed are hyscale, distdgl, pagraph, p3"),
        ("design.n=0", "design.n=0: must be at least 1"),
        ("board.power_w=0", "board.power_w=0: expected 0.001 to"),
        ("accelerators=[]", "accelerators=[]: expected 1 to 256 numbers"),
        ("model.num_layers=3", "model.num_layers=3: the sampler has 2 hops"),
        ("beside=v100", "beside=v100: allowed are epyc7763_a5000_x4, epyc"),
        ("system=p3 accelerators=[0]", "accelerators=[0]: expected 1 to 256 numbers from 1 to"),
    ):
        with one_line(message):
            config(*override.split())
    options = config("system=distdgl")
    assert isinstance(options.platform, Platform)
    at_peak = replace(options, platform=replace(options.platform, efficiency=None))
    layers = replace(config(), sampler=LayerSampling(layer_sizes=[10, 10]))
    alone = replace(config(), platform=platform())
    for given, message in (
        (at_peak, r"platform\.efficiency: required with system=distdgl"),
        (layers, "expected neighbor sampling"),
        (config("system=distdgl", "model=gat"), "attention or weighted messages in layer 0"),
        (alone, r"accelerators=\[1, 2, .*\]: expected \[0\], since"),
    ):
        with pytest.raises(ConfigError, match=message):
            simulate(given)
    results = simulate(replace(alone, accelerators=[0])).results
    assert results[0].planned.plan.shares[0].device.kind == "cpu"


@pytest.mark.long
def test_a_published_platform_stands_beside() -> None:
    found = simulate(config("accelerators=[1,4]", "beside=epyc7763_a5000_x4"))
    assert found.comparison == simulate(config("accelerators=[1,4]", "platform=epyc7763_a5000_x4"))
    assert describe(found)["beside"]["results"] == describe(found.comparison)["results"]
    console = Console(file=io.StringIO(), width=200)
    print_scaling(found, console)
    printed = console.file.getvalue()
    assert f"epoch s, {found.comparison.platform}" in printed
    for ours, theirs in zip(found.results, found.comparison.results, strict=True):
        (row,) = (line for line in printed.splitlines() if f"{ours.epoch_s:.3f}" in line)
        assert f"{theirs.epoch_s:.3f}" in row


@pytest.fixture
def measured_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CardRates:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    numbers = {"index": 0, "memory": 1 << 34, "free": 1 << 34, "is_busy": False}
    gpu = nvml.Gpu(name="A card", uuid="GPU-1", capability=(9, 0), **numbers)
    found = nvml.Gpus(driver="600.1", cuda=(13, 0), devices=(gpu,))
    monkeypatch.setattr(nvml, "find_gpus", lambda: found)
    platform().write(tmp_path / "platform.yaml")
    return load_or_measure_rates("GPU-1", "600.1", lambda: RATES)


@pytest.mark.long
def test_this_machines_gpu_stands_beside_the_papers(measured_gpu: CardRates, tmp_path) -> None:
    found = simulate(config("accelerators=[0,1]", "platform=this_gpu", "hybrid=false"))
    assert found.platform.endswith(" + A card")
    assert found.comparison is not None
    assert found.comparison.platform == "2 x EPYC 7763 + 4 x RTX A5000"
    (share,) = found.results[1].planned.plan.shares
    assert isinstance(share.device, Cuda)
    assert share.device.macs_per_s == measured_gpu.macs_per_s
    assert share.device.link_bandwidth == measured_gpu.link_bandwidth(512)
    assert share.prefetch == "device"
    (file,) = (tmp_path / "cuda").iterdir()
    file.unlink()
    with pytest.raises(ConfigError, match=r"GPU 0 \(A card\): no rates for driver"):
        simulate(config("platform=this_gpu"))


def test_the_curve_is_a_file_of_its_own(figure_9: ScalingCurve) -> None:
    picture = draw(figure_9)
    root = ElementTree.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    assert len(re.findall("<circle", picture)) == 4
    assert "GCN on mag240m, hybrid, 2 x EPYC 7763" in picture
    assert ">speed-up, simulated<" in picture
    assert json.loads(json.dumps(describe(figure_9)))["results"][1]["num_accelerators"] == 4
