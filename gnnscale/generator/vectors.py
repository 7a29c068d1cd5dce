"""Test vectors: a step of training in C simulation, for a test bench of the vendor's tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gnnscale.backend.fpga.alone import PackedStep, Step, pack_step, run_step
from gnnscale.backend.fpga.layout import ChipLimits
from gnnscale.dataset import from_arrays
from gnnscale.graph import Graph
from gnnscale.model import GNN, ModelConfig
from gnnscale.sampler import NeighborSampler

#: So small that co-simulation, cycle by cycle of RTL, ends within hours.
_VERTICES, _EDGES, _SEEDS, _FANOUT = 64, 512, 8, 3
_WORD = 64


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """What the kernel is called with, and what it has to return."""

    step: PackedStep
    expected: Step

    @property
    def depths(self) -> dict[str, int]:
        """Words of each buffer."""
        sizes = {name: array.nbytes for name, array in self.step.inputs.items()}
        return {
            name: -(-num_bytes // _WORD)
            for name, num_bytes in (sizes | {**self.step.num_bytes}).items()
        }

    def files(self) -> dict[str, bytes]:
        """Return the files that the test bench reads, by their names.

        ``arguments.txt`` has the words of each port's buffer, and then the scalar arguments.
        """
        lines = [f"{name} {words}" for name, words in self.depths.items()]
        lines += [f"scalar {value}" for value in self.step.scalars]
        found = {f"{name}.bin": array.tobytes() for name, array in self.step.inputs.items()}
        found["arguments.txt"] = ("\n".join(lines) + "\n").encode()
        found["expected_gradients.bin"] = self.expected.gradients.tobytes()
        found["expected_result.bin"] = self.expected.result.tobytes()
        return found


def make_vectors(
    model: ModelConfig, *, num_features: int, num_classes: int, limits: ChipLimits, library: Path
) -> Vectors:
    """Train one step of a small graph of the model's widths in C simulation.

    Raises:
        ConfigError: the model does not fit the design.
    """
    torch.manual_seed(0)
    built = model.build(num_features=num_features, num_classes=num_classes)
    assert isinstance(built, GNN)
    graph = random_graph(_VERTICES, _EDGES, num_features, num_classes)
    fanouts = [_FANOUT] * model.num_layers
    batch = NeighborSampler(graph, fanouts=fanouts, seed=1).sample(np.arange(_SEEDS), 0)
    step = pack_step(limits, graph, built, batch)
    return Vectors(step=step, expected=run_step(library, step))


def random_graph(num_vertices: int, num_edges: int, num_features: int, num_classes: int) -> Graph:
    """Return a graph whose degrees are skewed, with every edge in both directions."""
    generator = np.random.default_rng(0)
    ends = (generator.random((2, num_edges // 2)) ** 2 * num_vertices).astype(np.int64)
    both = (np.concatenate([ends[0], ends[1]]), np.concatenate([ends[1], ends[0]]))
    rows = generator.standard_normal((num_vertices, num_features), np.float32)
    labels = generator.integers(0, num_classes, num_vertices)
    every = np.arange(num_vertices)
    return from_arrays(both, rows, labels, train_idx=every, num_classes=num_classes, name="random")
