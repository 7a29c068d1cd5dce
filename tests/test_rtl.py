"""Parts of the FPGA kernels as RTL, beside C simulation and the model of resources.

They need Verilator and the extra ``rtl``, which CI installs: ``pytest -m rtl``.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FPGA = Path(__file__).parents[1] / "fpga"

pytestmark = [
    pytest.mark.rtl,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def rtl() -> Any:
    """The modules of ``fpga/rtl``."""
    sys.path.append(str(FPGA))
    try:
        names = ("build", "checks", "parts", "report")
        yield SimpleNamespace(**{name: import_module(f"rtl.{name}") for name in names})
    finally:
        sys.path.remove(str(FPGA))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rtl")


@pytest.fixture(scope="module")
def models(rtl: Any, folder: Path) -> Any:
    return rtl.checks.tile_and_small(folder)


def test_parts_give_what_their_processes_give_in_the_same_cycles(rtl, folder, models) -> None:
    found = rtl.checks.streams(folder, rtl.parts.TILE, models[0], 24)
    kinds = {(each.part, each.what) for each in found}
    assert {"scatter", "switch", "gather", "array"} == {part for part, _ in kinds}
    assert {("array", mode) for mode in ("forward", "backward", "weights")} <= kinds
    assert all(sum(each.part == part for each in found) >= 20 for part, _ in kinds)
    assert all(each.elements > 0 for each in found)
    # The very same cycles: not even what fills and empties a pipeline differs.
    assert [each for each in found if each.different or each.other_cycle] == []
    assert all(each.csim == each.rtl for each in found)


def test_a_window_that_is_too_short_is_found(rtl, folder, models) -> None:
    """A sum that is read again a cycle too early misses what was added to it."""
    early = rtl.build.verilate("gather", rtl.parts.gather(window=10), folder / "early")
    archives = {**models[0], "gather": early}
    found = rtl.checks.streams(folder / "early", rtl.parts.TILE, archives, 8, "gather")
    assert any(each.different for each in found)
    assert any(each.rtl < each.csim for each in found)


def test_a_small_engine_trains_as_its_simulation_does(rtl, folder, models) -> None:
    steps = list(rtl.checks.small_engine(folder, models[1], 12))
    assert {step.model for step in steps} == {"GCN", "GraphSAGE", "GIN"}
    assert all(step.same and step.csim_cycles == step.rtl_cycles for step in steps)


def test_the_model_knows_what_parts_take(rtl, folder) -> None:
    found = {each.part: each for each in rtl.checks.resources(folder)}
    assert found.keys() == {"scatter", "switch", "gather", "array"}
    assert [each for each in found.values() if not rtl.report.is_near(each)] == []
    assert found["gather"].yosys.brams == 114
    assert found["array"].yosys.dsps == 2 * rtl.parts.TILE


def test_a_missing_tool_is_one_line(rtl, folder, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(rtl.build.ToolError, match=r"^verilator is not installed$"):
        rtl.build.verilate("switch", rtl.parts.part("switch", rtl.parts.TILE), folder / "none")
