import json
from dataclasses import replace
from pathlib import Path

import pytest
from generated_designs import config

from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design import generate
from gnnscale.fpga_design.design import read_design
from gnnscale.planner.fpga_board import Resources


@pytest.fixture(scope="module")
def generated():
    return generate(config())


@pytest.mark.long
def test_the_u250_gets_the_design_that_ships(generated) -> None:
    design = generated.design
    assert (design.n, design.m, design.row_words, design.compute_units) == (2, 256, 98304, 4)
    assert design.banks == ("DDR[0]", "DDR[1]", "DDR[2]", "DDR[3]")
    assert generated.exploration.best.card == (8, 1024)
    assert generated.estimate.fits


def test_c_simulation_takes_somewhat_more_than_the_equations(generated) -> None:
    assert 1 < generated.estimate.csim.ratio < 1.5
    assert generated.estimate.csim.num_seeds == 32


def test_a_directory_has_what_vitis_and_the_host_need(generated, tmp_path: Path) -> None:
    generated.write(tmp_path, groups={"model": "gcn"}, options={"model": {"hidden": 32}})
    names = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*")}
    assert {
        *("gnnscale_design.hpp", "connectivity.cfg", "design.mk", "design.tcl", "train.yaml"),
        *("Makefile", "README.md", "hls.tcl", "testbench.cpp", "kernels/step.cpp"),
        *("vectors/arguments.txt", "vectors/expected_gradients.bin"),
    } <= names
    (tmp_path / "design.json").write_text(json.dumps(generated.design.plain()))
    assert read_design(tmp_path) == generated.design


@pytest.mark.long
def test_the_papers_models_choose_the_papers_design() -> None:
    found = generate(config("mode=hitgnn", "model.hidden=32", "graph=reddit", "cards=4"))
    assert found.exploration.best.card == (8, 2048)
    # Which is more than fits by the parts.
    assert not found.estimate.fits
    assert found.estimate.shares["SLR0"]["dsps"] == pytest.approx(1.27, abs=0.01)


@pytest.mark.long
def test_a_board_on_which_nothing_fits_is_refused() -> None:
    options = config("board=u200")
    small = [
        replace(die, shell=Resources(), has=replace(die.has, urams=100.0))
        for die in options.board.dies
    ]
    with pytest.raises(ConfigError) as error:
        generate(replace(options, board=replace(options.board, dies=small)))
    assert str(error.value) == (
        "board Alveo U200: no design fits: n=1, m=16 and the shell take 136.0% of the urams of "
        "SLR0, 51.0% more than the 85% that can be placed"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model=gat",), "model: GATLayer does not run on an fpga; GCN, GraphSAGE, GIN"),
        (("model.norm=batch",), "model.norm: expected none on an fpga"),
        (("model.hidden=4096",), "model.hidden: expected at most 512 output features on"),
        (("sampler=layerwise",), "expected neighbor sampling"),
    ],
)
def test_what_the_kernels_do_not_have_is_refused(overrides, message) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        generate(config(*overrides))
    assert "\n" not in str(error.value)
