import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gnnscale.core.config.typed import typed
from gnnscale.core.errors import ConfigError
from gnnscale.planner.fpga_board import SOURCED, Board, board, board_values, boards

DIE: dict[str, Any] = {
    "name": "SLR0",
    "has": {"luts": 100, "registers": 200, "dsps": 10, "brams": 10, "urams": 10},
    "shell": {"luts": 10},
    "bank": "DDR[0]",
    "bandwidth": 1e9,
}
BOARD: dict[str, Any] = {
    "name": "small",
    "part": "xc",
    "platform": "p",
    "dies": [DIE],
    "memory_bytes": 1024,
    "clock_hz": 100_000_000,
    "link_bandwidth": 1e9,
    "power_w": 10,
    "sources": dict.fromkeys(SOURCED, "made up"),
}


def of(**changes: Any) -> Board:
    return typed(OmegaConf.create(BOARD | changes), Board, group="board")


@pytest.mark.parametrize("name", boards())
def test_boards_that_ship_name_their_sources(tmp_path: Path, name: str) -> None:
    found = board(name)
    assert all(len(found.sources[each]) > 10 for each in SOURCED)
    assert found.bandwidth == sum(die.bandwidth for die in found.dies)
    for die in found.dies:
        assert die.available + die.shell == die.has
    # A copy of it is the same.
    file = tmp_path / "mine.yaml"
    file.write_text((resources.files("gnnscale.configs") / "board" / f"{name}.yaml").read_text())
    assert typed(OmegaConf.create(board_values(file)), Board) == found


def test_a_board_of_ones_own(tmp_path: Path) -> None:
    (die,) = of().dies
    assert (die.available.luts, die.shell.dsps) == (90, 0)
    left = {key: value for key, value in BOARD.items() if key != "clock_hz"}
    with pytest.raises(ConfigError, match=r"board.clock_hz: required"):
        typed(OmegaConf.create(left), Board, group="board")
    with pytest.raises(ConfigError, match="board=u251: allowed are f1, u200, u250"):
        board("u251")
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(BOARD))
    assert typed(OmegaConf.create(board_values(file)), Board, group="board") == of()
    for content, message in (
        ({"watts": 3}, "watts"),
        ({"defaults": []}, "defaults: expected values of options only"),
        ({"name": "${oc.env:HOME}"}, "not allowed in this file"),
    ):
        file.write_text(json.dumps(content))
        with pytest.raises(ConfigError, match=message) as error:
            board_values(file)
        assert str(error.value).startswith(str(file))
    file.write_text(json.dumps({"_target_": "gnnscale.planner.fpga_board.Die", **BOARD}))
    with pytest.raises(ConfigError, match="_target_: unknown option"):
        board_values(file)
    with pytest.raises(ConfigError, match=r"board=nowhere.yaml: no such file"):
        board_values(Path("nowhere.yaml"))
