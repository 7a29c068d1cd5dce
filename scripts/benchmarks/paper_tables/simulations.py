"""Runs of the simulator by their options."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import yaml
from hydra import compose, initialize_config_module

from benchmarks.paper_tables.rows import Row
from gnnscale.core.config.typed import typed
from gnnscale.planner.graphs import PublishedGraph
from gnnscale.planner.simulator import ScalingCurve, SimulateConfig, SimulatedRun, simulate

#: Rates as the papers' own models have them: peaks, and one processor's memory for all links.
#: Sampling takes no time from the other stages.
PEAK = (
    "platform.efficiency.link=1",
    "platform.efficiency.accelerator=1",
    "platform.efficiency.memory=0.5",
    "platform.processor.rates.sampled_edges_per_s=[1e15,1e15,1e15]",
)


#: Options with files or fields of their own, which take long to compose.
_SECTIONS = ("platform", "board", "dataset", "model", "sampler", "design")


@cache
def options(overrides: tuple[str, ...]) -> SimulateConfig:
    """Return the options; runs that differ in single values alone are composed once."""
    sections, values = [], {}
    for override in overrides:
        name, _, value = override.partition("=")
        if name.partition(".")[0] in _SECTIONS:
            sections.append(override)
        else:
            values[name] = yaml.safe_load(value)
    return replace(_composed(tuple(sections)), **values)


@cache
def _composed(overrides: tuple[str, ...]) -> SimulateConfig:
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        return typed(compose("simulate", list(overrides)), SimulateConfig)


@cache  # tables share cells
def scaling(*overrides: str, graph: PublishedGraph | None = None) -> ScalingCurve:
    return simulate(options(tuple(overrides)), graph=graph)


def one(*overrides: str, graph: PublishedGraph | None = None) -> SimulatedRun:
    """Return the only result of a simulation."""
    (found,) = scaling(*overrides, graph=graph).results
    return found


def speedups(
    name: str, counts: Sequence[int], *overrides: str
) -> tuple[ScalingCurve, list[float], list[Row]]:
    """Return a simulation at peak rates over ``counts`` cards, its speed-ups, and their rows."""
    found = scaling(*overrides, f"accelerators=[{','.join(map(str, counts))}]", *PEAK)
    ups = [found.speedup(each) for each in found.results]
    rows = [
        Row(f"{name}, {count} cards", "x", None, up) for count, up in zip(counts, ups, strict=True)
    ]
    return found, ups, rows


def of_model(model: str, hidden: int, fanouts: tuple[int, ...] = (25, 10)) -> tuple[str, ...]:
    """Return the options of a model and its sampler; ``fanouts`` are from the seeds outwards."""
    return (
        f"model={model}",
        f"model.hidden={hidden}",
        f"model.num_layers={len(fanouts)}",
        f"sampler.fanouts=[{','.join(map(str, fanouts))}]",
    )
