import shutil
import subprocess
from pathlib import Path
from typing import Any

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


@pytest.fixture
def kernels(csim_home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the design with which vectors are made."""
    monkeypatch.setenv("GNNSCALE_HOME", str(csim_home))
    return {"limits": ChipLimits(n=2), "library": library(SimulatedDesign())}


@pytest.mark.long
def test_vectors_have_every_argument(kernels: dict[str, Any]) -> None:
    found, again = (
        make_vectors(GCN(hidden=20), num_features=33, num_classes=5, **kernels) for _ in range(2)
    )
    files, sent = found.files(), ["batch", "edges", "features", "weights"]
    names = files["arguments.txt"].decode().split()[::2]
    assert names == [*sent, "gradients", "scratch", "result", *["scalar"] * 7]
    for name in sent:
        assert found.depths[name] * 64 >= len(files[f"{name}.bin"]) > 0
    assert np.isfinite(np.frombuffer(files["expected_gradients.bin"], np.float32)).all()
    assert again.files() == files


@pytest.mark.integration
def test_the_test_bench_compares_bits(tmp_path: Path, kernels: dict[str, Any]) -> None:
    found = make_vectors(GraphSAGE(hidden=16), num_features=20, num_classes=4, **kernels)
    for folder in ("include", "kernels", "csim"):
        shutil.copytree(ROOT / "fpga" / folder, tmp_path / folder)
    shutil.copy(ROOT / "fpga" / "Makefile", tmp_path)
    shutil.copy(ROOT / "fpga" / "templates" / "testbench.cpp", tmp_path)
    (tmp_path / "vectors").mkdir()
    for name, content in found.files().items():
        (tmp_path / "vectors" / name).write_bytes(content)
    # Without optimization, which comes last: that would take longer than the step.
    options = ["BUILD=build", "UNITS=4 -O0"]
    command = ["make", "-C", str(tmp_path), "testbench", *options]
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
