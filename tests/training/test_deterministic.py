"""With ``runtime.deterministic`` the clock decides nothing: equal options give equal weights."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import learnt
import pytest
import torch
from devices import accelerator, plan_of
from learnt import same

from gnnscale.core.errors import ConfigError

pytestmark = pytest.mark.timeout(120)

#: A processor and an emulated accelerator that is slow, by its metadata, whatever is measured.
HYBRID = (
    *("runtime.prefetch=one_stage", "runtime.prefetch_depth=4", "device_plan.split=[32,32]"),
    *(plan_of("cpu", accelerator(launch_s=5e-3)), "model.dropout=0.5", "model.norm=batch"),
    "num_threads=2",
)
EXACT = (*HYBRID, "runtime.deterministic=true", "runtime.checkpoint_every_s=0")
SLOWLY = "seam.features=unhurried:TakeTime"
STEPS = 6


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """Return the weights of both devices."""
    first = learnt.weights(folder / name.partition("+")[0])
    second = torch.load(folder / f"{name}.1.pt", weights_only=True)
    mine = {f"0.{key}": value for key, value in first.items()}
    return mine | {f"1.{key}": value for key, value in second.items()}


@pytest.mark.integration
def test_clock_and_resuming_change_nothing(trained_together, tmp_path) -> None:
    runs = {
        "exact": EXACT,
        "disturbed": (*EXACT, SLOWLY),
        "part": (*EXACT, "epochs=1"),
        "part+resumed": (*EXACT, f"resume={tmp_path / 'part'}"),
        "measured": (*HYBRID, SLOWLY),
    }
    found = trained_together(2, runs)
    for name in ("disturbed", "part+resumed"):
        assert same(weights(tmp_path, "exact"), weights(tmp_path, name)), name
    for what in ("losses", "splits", "decisions"):
        assert found["disturbed"][what] == found["exact"][what]
        assert found["part+resumed"][what] == found["exact"][what][STEPS:]
    # It was stopped between a decision and the step from which that applies.
    assert any(found["part"]["decisions"])
    assert {tuple(split) for split in found["part"]["splits"][:-1]} == {(32, 32)}
    # Work was moved, to the processor; where seconds decide, it goes to the accelerator.
    assert any(found["exact"]["decisions"])
    assert found["exact"]["splits"][-2][0] > 32 > found["measured"]["splits"][-2][0]


#: One device.
ALONE = ("runtime.prefetch=two_stage", "num_threads=5", "runtime.deterministic=true")


@pytest.mark.long
def test_decisions_do_not_follow_what_the_clock_says(run, observer, tmp_path, monkeypatch) -> None:
    """Threads of one device move between its stages, by counted work."""
    found = []
    clock = time.perf_counter
    for name in ("a", "b"):
        observer.events.clear()
        run(tmp_path / name, *ALONE)
        steps = [each for event, each in observer.events if event == "stepped"]
        found.append([(each.decision, each.devices[0].threads, each.loss) for each in steps])
        # A clock on which each reading is seconds later than the one before, some more than others.
        draw, passed = random.Random(0), [0.0]

        def wild(draw: random.Random = draw, passed: list[float] = passed) -> float:
            passed[0] += draw.expovariate(0.1)
            return clock() + passed[0]

        monkeypatch.setattr(time, "perf_counter", wild)
    assert found[0] == found[1]
    decisions = [decision for decision, *_ in found[0] if decision]
    assert decisions
    assert all(" ms by counted work is the bottleneck: 1 thread " in each for each in decisions)
    assert len({threads for _, threads, _ in found[0]}) > 1
    seconds = [sum(vars(each.devices[0].stages).values()) for each in steps]
    assert max(seconds) > 10  # what is reported was measured


@pytest.mark.long
def test_options_that_plans_follow_from_stay(run, tmp_path, caplog) -> None:
    with caplog.at_level("INFO"):
        run(tmp_path, *ALONE, "epochs=1")
    (line,) = [each for each in caplog.messages if "deterministic" in each]
    assert line.startswith("runtime.deterministic=true: the plan follows nominal rates, ")
    go_on = (*ALONE, "epochs=2", f"resume={tmp_path}")
    for override, message in {
        "num_threads=4": "resume: num_threads is 4, but ",
        "runtime.drm=false": "resume: runtime.drm is False, but ",
        "runtime.prefetch_depth=3": "resume: runtime.prefetch_depth is 3, but ",
    }.items():
        with pytest.raises(ConfigError, match=message):
            run(tmp_path, *go_on, override)
    # Without it they may change, as ever.
    run(tmp_path, *go_on, "runtime.deterministic=false", "num_threads=4")
    assert not torch.are_deterministic_algorithms_enabled()


#: What takes AVX2 and AVX-512 from gnnscale, torch, NumPy and the C library.
BASELINE = {
    "GNNSCALE_SIMD_LEVEL": "baseline",
    "ATEN_CPU_CAPABILITY": "default",
    "NPY_DISABLE_CPU_FEATURES": "AVX2,FMA3,AVX512F,AVX512CD,AVX512_SKX",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",
}


@pytest.mark.long
def test_instruction_sets_change_nothing(tmp_path) -> None:
    for name, variables in {"all": {}, "baseline": BASELINE}.items():
        command = [
            *(sys.executable, "-m", "gnnscale", "train", "dataset=planted_partition", "model=gat"),
            *("dataset.num_vertices=500", "dataset.num_edges=5000", "epochs=2", "batch_size=64"),
            *("num_threads=2", "runtime.deterministic=true", f"hydra.run.dir={tmp_path / name}"),
            f"dataset.store={tmp_path / 'store'}",
        ]
        subprocess.run(command, env=os.environ | variables, check=True, cwd=tmp_path)
    assert same(learnt.weights(tmp_path / "all"), learnt.weights(tmp_path / "baseline"))
