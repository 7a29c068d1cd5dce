from dataclasses import replace
from pathlib import Path

import yaml
from generated_designs import U250

from gnnscale.fpga_design import package as files

ROOT = Path(__file__).parents[2]
PORTS = ("batch", "edges", "features", "weights", "gradients", "scratch", "result")


def test_the_design_of_the_u250_has_the_connectivity_that_ships() -> None:
    def settings(text: str) -> list[str]:
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    shipped = (ROOT / "fpga" / "u250.cfg").read_text()
    assert settings(files.connectivity(U250)) == settings(shipped)
    # A part of one die has no names of dies.
    text = files.connectivity(replace(U250, dies=("SLR0",), banks=("MC_NOC0",)))
    assert "slr=" not in text
    assert text.count("sp=gnnscale_step_1.") == len(PORTS)
    assert "sp=gnnscale_step_1.batch:MC_NOC0" in text


def test_constants_are_those_of_the_design() -> None:
    text = files.constants(U250)
    for constant in ("N 2 ", "M 256 ", "ROW_WORDS 98304 ", "COMPUTE_UNITS 4", "CLOCK_HZ 300000000"):
        assert f"#define GNNSCALE_{constant}" in text
    made = files.make_constants(U250, header=False)
    assert "PLATFORM := xilinx_u250_gen3x16_xdma_4_1_202210_1\n" in made
    assert "MHZ := 300\n" in made
    assert "HEADER" not in made
    assert "HEADER := layer.hpp\n" in files.make_constants(U250, header=True)


def test_vitis_hls_gets_the_part_its_clock_and_the_words_of_each_port() -> None:
    depths = {port: number for number, port in enumerate(PORTS, 1)}
    text = files.tcl_constants(U250, depths, header=True)
    words = "batch 1 edges 2 features 3 weights 4 gradients 5 scratch 6 result 7"
    for part in ("set part xcu250-figd2104-2L-e\n", "set period 3.333\n", "layer.hpp"):
        assert part in text
    assert f"set depths {{{words}}}" in text


def test_the_host_configuration_names_the_card_for_each_device() -> None:
    options = {"batch_size": 2048, "model": {"hidden": 32}}
    link = {"memory_bytes": 1 << 30, "link_bandwidth": 12e9}
    text = files.host_configuration(
        U250, groups={"model": "sage"}, options=options, cards=2, **link
    )
    found = yaml.safe_load(text)
    overrides = [{"override /model": "sage"}, {"override /device_plan": "fpga_csim"}]
    assert found["defaults"] == [*overrides, "_self_"]
    first, second = found["device_plan"]["devices"]
    assert first == second
    assert (first["kind"], first["n"], first["m"], first["compute_units"]) == ("fpga", 2, 256, 4)
    assert first["bitstream"] is None


def test_what_is_copied_is_as_it_was(tmp_path: Path) -> None:
    files.write_files(tmp_path, ROOT / "fpga", {"design.mk": "N := 2\n"}, {"vectors/a.bin": b"\0"})
    copied = [file for folder in files.FOLDERS for file in (tmp_path / folder).rglob("*.[ch]pp")]
    assert len(copied) > 20
    for file in copied:
        assert file.read_bytes() == (ROOT / "fpga" / file.relative_to(tmp_path)).read_bytes()
    assert (tmp_path / "Makefile").read_bytes() == (ROOT / "fpga" / "Makefile").read_bytes()
    assert (tmp_path / "vectors" / "a.bin").read_bytes() == b"\0"
