"""The test bench runs by our own simulation what it hands to the vendor's tools."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gnnscale.backend.fpga.csim.build import SimulatedDesign, library
from gnnscale.backend.fpga.layout import ChipLimits
from gnnscale.fpga_design.package import make_vectors, random_graph
from gnnscale.nn import GCN, GraphSAGE

ROOT = Path(__file__).parents[2]


def test_random_graphs_have_edges_both_ways() -> None:
    graph = random_graph(50, 200, 3, 4)
    assert graph.features.shape == (50, 3)
    ends = {(s, d) for d in range(50) for s in graph.indices[graph.indptr[d] : graph.indptr[d + 1]]}
    assert ends == {(d, s) for s, d in ends}
    assert graph.labels.max() < 4


def test_vectors_have_every_argument(tmp_path: Path) -> None:
    found = make_vectors(
        GCN(hidden=20),
        num_features=33,
        num_classes=5,
        limits=ChipLimits(n=2),
        library=library(SimulatedDesign()),
    )
    files = found.files()
    lines = files["arguments.txt"].decode().split()
    names = lines[::2]
    assert names[:7] == [
        *("batch", "edges", "features", "weights"),
        *("gradients", "scratch", "result"),
    ]
    assert names[7:] == ["scalar"] * 7
    for name in ("batch", "edges", "features", "weights"):
        assert found.depths[name] * 64 >= len(files[f"{name}.bin"]) > 0
    assert np.isfinite(np.frombuffer(files["expected_gradients.bin"], np.float32)).all()
    # The same once more: nothing of it is random.
    again = make_vectors(
        GCN(hidden=20),
        num_features=33,
        num_classes=5,
        limits=ChipLimits(n=2),
        library=library(SimulatedDesign()),
    )
    assert again.files() == files


@pytest.mark.integration
def test_the_test_bench_compares_bits(tmp_path: Path) -> None:
    found = make_vectors(
        GraphSAGE(hidden=16),
        num_features=20,
        num_classes=4,
        limits=ChipLimits(n=2),
        library=library(SimulatedDesign()),
    )
    for folder in ("include", "kernels", "csim"):
        shutil.copytree(ROOT / "fpga" / folder, tmp_path / folder)
    shutil.copy(ROOT / "fpga" / "Makefile", tmp_path)
    shutil.copy(ROOT / "fpga" / "templates" / "testbench.cpp", tmp_path)
    (tmp_path / "vectors").mkdir()
    for name, content in found.files().items():
        (tmp_path / "vectors" / name).write_bytes(content)
    command = ["make", "-C", str(tmp_path), "testbench", "BUILD=build"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "all bits agree" in done.stdout
    expected = tmp_path / "vectors" / "expected_gradients.bin"
    wrong = bytearray(expected.read_bytes())
    wrong[5] ^= 1
    expected.write_bytes(wrong)
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode != 0
    assert "gradients: word 1 of 32 bits differs" in done.stdout
