import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from printed import on_console

from gnnscale.backend.fpga.csim import build
from gnnscale.core.config.typed import typed
from gnnscale.core.errors import ConfigError
from gnnscale.data import PlantedPartition, from_arrays
from gnnscale.report import doctor
from gnnscale.report.doctor import (
    DoctorConfig,
    examine,
    examine_store,
    print_findings,
    print_store,
    store_problem,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    small = {"num_vertices": 40, "num_edges": 100, "num_classes": 2, "num_features": 2}
    return PlantedPartition(name="x", store=str(tmp_path / "[red]store"), **small).prepare()


def damage(store: Path) -> None:
    content = (store / "features.npy").read_bytes()
    (store / "features.npy").write_bytes(content[:-2] + b"\xc0\x7f")


def printed(store: Path) -> str:
    return on_console(print_store, examine_store(store), width=200)


def test_whole_and_damaged_stores(store: Path) -> None:
    findings = examine_store(store)
    assert findings["path"] == str(store)
    assert store_problem(findings) is None
    assert printed(store).count("as it must be") == len(findings["checks"]) == 10
    assert "[red]store" in "".join(printed(store).split())  # a long path is broken somewhere
    damage(store)
    findings = json.loads(json.dumps(examine_store(store)))
    assert store_problem(findings).startswith(f"{store}/features.npy: checksum ")
    assert store_problem(findings).endswith("(and 1 more, see doctor.json)")
    assert "feature 1 of vertex 39 is not finite" in printed(store)
    none = store_problem(examine_store(store / "none"))
    assert none == f"{store}/none: not a graph store, it has no meta.json"


def test_what_to_install_and_memory_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Square brackets are markup to rich."""
    monkeypatch.setattr(doctor, "installed", lambda *_: None)
    shown = on_console(print_findings, examine(), width=200)
    assert "pip install '.[dgl]'" in shown
    assert "pip install '.[pyg]'" in shown
    memory = {"total": 8 << 30, "available": 2 << 30, "installed": 8 << 30}
    assert doctor._format_memory(memory) == "8.00 GiB, 2.00 GiB available"
    shown = doctor._format_memory(memory | {"total": 4 << 30})
    assert shown.startswith("4.00 GiB (limited by a container or ulimit -v, 8.00 GiB installed),")


def test_bad_options() -> None:
    for option, message in (({"calibrate": None}, "=null"), ({"store": ""}, "store=: expected a ")):
        with pytest.raises(ConfigError, match=message):
            typed(OmegaConf.create(option), DoctorConfig)


@pytest.mark.long
def test_the_command_says_what_is_damaged(store: Path, run_lines: Any, tmp_path: Path) -> None:
    damage(store)
    home = f"GNNSCALE_HOME={tmp_path / 'home'}"
    (answer,) = run_lines([[home, "doctor", f"store='{store}'"]], tmp_path)
    assert answer.last_line.startswith(f"{store}/features.npy: checksum ")
    findings = json.loads(Path(answer.stdout.splitlines()[-1]).read_text())
    assert len([check for check in findings["store"]["checks"] if check["problem"]]) == 2


class _Cards:
    """pyxrt as far as doctor asks it; cards after the first two cannot be opened."""

    class xrt_info_device:  # noqa: N801
        name = "name"

    names = ("xilinx_u250", "xilinx_u55c")

    def device(self, index: int) -> Any:
        if index >= len(self.names):
            raise RuntimeError(f"no such device {index}")
        return SimpleNamespace(get_info=lambda key: self.names[index])


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Any], dict[str, Any]]:
    def find(xrt: Any) -> dict[str, Any]:
        monkeypatch.setattr(doctor.build, "load_pyxrt", lambda: xrt)
        monkeypatch.setenv("XILINX_XRT", str(tmp_path))
        return doctor._boards()

    return find


def test_boards_of_drivers(driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver(_Cards()) == {"xrt": "unknown version", "boards": list(_Cards.names)}
    (tmp_path / "version.json").write_text('{"BUILD_VERSION": "2.12.427"}')
    assert driver(_Cards())["xrt"] == "2.12.427"
    (tmp_path / "version.json").write_text("[]")
    assert driver(_Cards())["xrt"] == "unknown version"

    cards = _Cards()
    for number in (0, 1, 5):
        cards.enumerate_devices = lambda number=number: number
        assert driver(cards)["boards"] == list(_Cards.names[:number])
    assert driver(SimpleNamespace())["boards"] == []
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "pyxrt", None)
    assert doctor._boards() == {"xrt": None, "boards": []}


@pytest.mark.parametrize(
    ("xrt", "boards", "pyxrt", "needs"),
    [
        (None, [], None, "XRT 2.12 or later"),
        (None, [], "1", "source /opt/xilinx/xrt/setup.sh"),
        ("2.16.1", [], "1", r"a board, of which XRT \(2.16.1\) finds none; a bitstream"),
        ("2.16.1", ["xilinx_u250"], "1", "^a bitstream, see fpga/README.md"),
    ],
)
def test_needs_of_boards(xrt: str | None, boards: list[str], pyxrt: str | None, needs: str) -> None:
    assert re.search(needs, doctor._board_needs({"xrt": xrt, "boards": boards}, pyxrt))


def test_csim_is_found_without_compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "_compile", None)
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert doctor._csim()["csim_compiler"] is None
    monkeypatch.setattr(build, "_fits", lambda design, file: False)
    found = doctor._csim()
    assert found == {"csim_library": None, "csim_compiler": None}
    assert "a C++ compiler" in str(doctor._csim_needs(found))
    monkeypatch.setattr(build, "_fits", lambda design, file: True)
    found = doctor._csim()
    assert str(found["csim_library"]).endswith(".so")
    assert doctor._csim_needs(found) is None
    assert doctor._format_csim(found) == "default design installed, no compiler for others"
    assert doctor._csim_needs({"csim_library": None, "csim_compiler": "g++"}) is None


def test_ranges_of_times(tmp_path: Path) -> None:
    days = np.array(["2001-03-04", "2010-01-01"], "datetime64[D]")
    graph = from_arrays(([0, 1], [1, 0]), np.ones((2, 1)), edge_times=days)
    graph.save(tmp_path / "store")
    assert examine_store(tmp_path / "store")["times"] == {
        "vertices": "always",
        "edges": "2001-03-04 to 2010-01-01",
    }
    lines = printed(tmp_path / "store").splitlines()
    assert any("times of edges" in line and "2001-03-04 to 2010-01-01" in line for line in lines)
    damage(tmp_path / "store")
    assert "times" not in examine_store(tmp_path / "store")
