"""``gnnscale generate``, ``gnnscale train`` on its design, and the vendor's reports beside it."""

import json
import os
from pathlib import Path

import pytest
import vendor_reports

pytestmark = pytest.mark.integration

DATA = Path(os.environ["GNNSCALE_TEST_DATA"]) / "planetoid"
CORA = (
    *("dataset=planetoid", "dataset.name=cora", f"dataset.raw={DATA}"),
    *("model=gcn", "sampler.fanouts=[10,10]", "batch_size=140"),
)
#: One design, and so one compilation, for every graph here.
SMALL_CARD = ("board=u50", "model.hidden=16")


def losses(run: Path) -> list[float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train_loss"] for line in lines]


def test_a_generated_design_trains_cora_to_the_processors_losses(gnnscale, tmp_path) -> None:
    if not DATA.is_dir():
        pytest.skip("the graphs for tests are not here")
    done = gnnscale("generate", *CORA, *SMALL_CARD, "output=design").succeeded()
    assert done.stdout.strip().splitlines()[-1].endswith("/design")
    for run, more in (("card", ()), ("cpu", ("device_plan=cpu", "device_plan.devices=[cpu]"))):
        gnnscale(
            "train", "config=design/train.yaml", "epochs=1", f"output={run}", *more
        ).succeeded()
    assert losses(tmp_path / "card") == pytest.approx(losses(tmp_path / "cpu"), abs=1e-4)
    summary = json.loads((tmp_path / "card" / "summary.json").read_text())
    assert summary["devices"][0]["figures"] == "csim"


def test_the_vendors_reports_stand_beside_the_estimates(gnnscale, tmp_path: Path) -> None:
    gnnscale("generate", "output=design", "model.hidden=32").succeeded()
    assert gnnscale("generate", "report=design/build").returncode == 1
    reports = tmp_path / "design" / "build"
    vendor_reports.write(reports / "hw" / "csynth.xml", vendor_reports.csynth())
    compared = gnnscale("generate", "report=design/build", "output=compared").succeeded()
    assert "Vitis HLS" in compared.stdout
    found = json.loads((tmp_path / "compared" / "comparison.json").read_text())
    (luts,) = (each for each in found["figures"] if each["name"] == "luts")
    assert luts["synthesized"] == 300_000
    assert luts["routed"] is None
    assert (tmp_path / "compared" / "comparison.html").is_file()


def test_nothing_is_written_if_no_design_fits(gnnscale, tmp_path: Path) -> None:
    done = gnnscale("generate", "output=design", "model=gat").refused()
    assert done.stderr.strip().splitlines()[-1].startswith("model: GATLayer does not run")
    assert not (tmp_path / "design").exists()


def test_a_card_of_ones_own(gnnscale, tmp_path: Path) -> None:
    shipped = Path(__file__).parents[3] / "gnnscale" / "configs" / "board" / "u50.yaml"
    text = shipped.read_text().replace("_target_: gnnscale.planner.fpga_board.Board\n", "")
    (tmp_path / "mine.yaml").write_text(text.replace("name: Alveo U50", "name: my card"))
    done = gnnscale("generate", "board=mine.yaml", "output=design", "model.hidden=16").succeeded()
    assert "on the my card" in done.stdout
    (tmp_path / "mine.yaml").write_text(text.replace("power_w: 50", ""))
    done = gnnscale("generate", "board=mine.yaml", "output=other").refused()
    assert "board.power_w: required" in done.stderr
    assert not (tmp_path / "other").exists()


def test_several_cards_have_the_parts_of_their_system(gnnscale, tmp_path: Path) -> None:
    sizes = ("dataset.num_vertices=600", "dataset.num_edges=4000", "dataset.num_classes=3")
    graph = ("dataset=planted_partition", *sizes, "sampler.fanouts=[4,4]", "batch_size=64")
    gnnscale("generate", *graph, "cards=2", *SMALL_CARD, "output=design").succeeded()
    text = (tmp_path / "design" / "train.yaml").read_text()
    assert "override /partitioner: edge_cut" in text
    gnnscale("train", "config=design/train.yaml", "epochs=1", "output=run").succeeded()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [each["kind"] for each in summary["devices"]] == ["fpga", "fpga"]
    assert summary["partition"] is not None
