import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import draw_caches
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

SPACE = "{http://www.w3.org/2000/svg}"
#: Policy, ratio, rows hit, MB of a step, seconds of an epoch.
JOBS = (
    ("none", 0.05, None, 20.0, 10.0),
    ("none", 0.2, None, 20.0, 10.4),
    ("pagraph", 0.05, 0.25, 16.0, 8.0),
    ("pagraph", 0.2, 0.5, 10.0, 5.0),
    ("legion", 0.2, 0.75, 5.0, 2.5),
    ("legion", 0.05, 0.5, 12.0, 6.0),
)


def sweep(folder: Path) -> Path:
    task = ["experiment=cache_sweep", "cache_planner=none,pagraph,legion"]
    OmegaConf.save({"hydra": {"overrides": {"task": task}}}, folder / "multirun.yaml")
    results = []
    for number, (policy, ratio, hits, link, seconds) in enumerate(JOBS):
        options = {"cache_planner": policy, "cache_planner.ratio": str(ratio)}
        figures = {"feature_hit_rate": hits, "topology_hit_rate": None, "link_mb": link}
        figures |= {"status": "completed", "figures": "emulated", "epoch_time_s": seconds}
        place = {"job": number, "options": options, "directory": str(folder / str(number))}
        results.append(place | figures)
        summary = {
            **{"dataset": "tiny", "processor": "any", "epochs": 2},
            "epoch_time_s": {"mean": seconds, "median": seconds},
            "devices": [{"counters": {"late_s": 0.05}}, {"counters": {"late_s": 0.02 * number}}],
        }
        (folder / str(number)).mkdir()
        (folder / str(number) / "summary.json").write_text(json.dumps(summary))
    (folder / "results.json").write_text(json.dumps({"jobs": results}))
    return folder


def test_figures_of_a_sweep_by_hand(tmp_path: Path) -> None:
    found = draw_caches.figures_of(sweep(tmp_path))
    options = "config=cache_sweep cache_planner=none,pagraph,legion"
    assert found["command"] == f"gnnscale train -m {options}"
    assert (found["kind"], found["graph"], found["processor"]) == ("emulated", "tiny", "any")
    # 0.08 s of two epochs of 2.5 s.
    assert found["late_share"] == pytest.approx(0.016)
    assert found["rows"][2] == {
        **{"policy": "pagraph", "ratio": 0.05, "feature_hit_rate": 0.25},
        **{"topology_hit_rate": None, "link_mb": 16.0, "epoch_time_s": 8.0},
    }
    assert draw_caches.table(found).splitlines()[2:] == [
        "| `none` |  | 20.00 | 10.20 |  | 20.00 | 10.20 |",
        "| `pagraph` | 25.0 % | 16.00 | 8.00 | 50.0 % | 10.00 | 5.00 |",
        "| `legion` | 50.0 % | 12.00 | 6.00 | 75.0 % | 5.00 | 2.50 |",
    ]
    picture = ElementTree.fromstring(draw_caches.draw(found))
    texts = [element.text or "" for element in picture.iter(f"{SPACE}text")]
    assert any(each.startswith("emulated: ") for each in texts)
    assert texts.count("legion") == texts.count("pagraph") == 3
    assert texts.count("none") == 2


def test_other_sweeps_are_refused(tmp_path: Path) -> None:
    results = sweep(tmp_path) / "results.json"
    text = results.read_text()
    changes: list[tuple[dict[str, Any], str]] = [
        ({"status": "failed"}, "3: not completed"),
        ({"figures": "measured"}, "differ by more than their caches: emulated, measured"),
        ({"options": {"cache_planner": "legion", "seed": "0"}}, "sweep over cache_planner and"),
        ({"options": {"cache_planner": "own", "cache_planner.ratio": "0.2"}}, "own: no line"),
    ]
    for changed, line in changes:
        content = json.loads(text)
        content["jobs"][3] |= changed
        results.write_text(json.dumps(content))
        with pytest.raises(SystemExit, match=line):
            draw_caches.figures_of(tmp_path)
    # Without the sizes of the table.
    results.write_text(text.replace('"0.2"', '"0.3"'))
    with pytest.raises(SystemExit, match="ratio: "):
        draw_caches.figures_of(tmp_path)


@settings(max_examples=20)
@given(wanted=st.lists(st.floats(-50, 350), max_size=12))
def test_labels_keep_their_order_a_line_apart_and_inside(wanted: list[float]) -> None:
    wanted = sorted(wanted)
    found = draw_caches.apart(wanted, 0.0, 300.0)
    assert len(found) == len(wanted)
    assert all(0.0 <= place <= 300.0 for place in found)
    gaps = [after - before for before, after in pairwise(found)]
    assert all(gap >= draw_caches.LINE - 1e-9 for gap in gaps)
