import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from omegaconf import OmegaConf
from pictures import SVG, texts

from gnnscale.report.sweep import SweepReport
from gnnscale.report.sweep.jobs import collect, over_seeds


def job(directory: Path, number: int, overrides: list[str], **summary: object) -> None:
    """Write what a job leaves; experiments choose devices, and other options are what they say."""
    folder = directory / str(number)
    (folder / ".hydra").mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(overrides), folder / ".hydra" / "overrides.yaml")
    OmegaConf.save({"hydra": {"job": {"num": number}}}, folder / ".hydra" / "hydra.yaml")
    options = [each.replace("+experiment", "device_plan.name") for each in overrides]
    config = OmegaConf.from_dotlist([each.replace("experiment", "device_plan") for each in options])
    OmegaConf.save(config, folder / "config.yaml")
    (folder / "summary.json").write_text(json.dumps(summary))


def completed(test_metric: float, seconds: float = 1.5, **more: object) -> dict[str, object]:
    return {
        **{"status": "completed", "epochs": 2, "best_epoch": 1, "metric": "accuracy"},
        **{"valid_metric": 0.5, "test_metric": test_metric, "mteps": 6.5, "figures": "measured"},
        **{"epoch_time_s": {"mean": 2.0, "median": seconds}, **more},
    }


def ended(directory: Path, **more: Any) -> None:
    hydra = {"sweep": {"dir": str(directory)}, **more}
    SweepReport().on_multirun_end(OmegaConf.create({"hydra": hydra}))


def sweep(directory: Path) -> None:
    jobs = [(0, 8, 0.5), (1, 8, 0.7), (0, 16, 0.8), (1, 16, 0.9)]
    for number, (seed, hidden, metric) in enumerate(jobs):
        overrides = ["epochs=2", f"seed={seed}", f"model.hidden={hidden}"]
        job(directory, number, overrides, **completed(metric))


def test_jobs_and_means_over_seeds(tmp_path: Path) -> None:
    sweep(tmp_path)
    jobs = collect(tmp_path)
    assert [each["job"] for each in jobs] == [0, 1, 2, 3]
    assert jobs[2]["options"] == {"seed": "0", "model.hidden": "16"}
    assert [jobs[2][name] for name in ("test_metric", "epoch_time_s", "mteps")] == [0.8, 1.5, 6.5]
    # Other hidden sizes are other work, not the same work done faster.
    assert jobs[2]["speed_up"] is None
    small, large = over_seeds(jobs)
    assert small["options"] == {"model.hidden": "8"}
    assert small["test_metric"]["mean"] == pytest.approx(0.6)
    assert small["test_metric"]["std"] == pytest.approx(0.1 * 2**0.5)
    assert large["test_metric"]["mean"] == pytest.approx(0.85)
    # Seed by seed: 0.8 - 0.5 and 0.9 - 0.7.
    assert small["difference"] is None
    assert large["difference"]["mean"] == pytest.approx(0.25)
    assert large["difference"]["std"] == pytest.approx(0.05 * 2**0.5)
    (_, other) = over_seeds([*jobs[:2], jobs[2]])
    assert other["difference"] is None


def test_table_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(tmp_path)
    ended(tmp_path)
    shown = capsys.readouterr().out
    assert "model.hidden=8: test accuracy 0.6000 ± 0.1414 over 2 seeds\n" in shown
    assert "0.8500 ± 0.0707 over 2 seeds; +0.2500 ± 0.0707 beside model.hidden=8\n" in shown
    assert shown.splitlines()[-1] == str(tmp_path / "results.json")
    assert len(json.loads((tmp_path / "results.json").read_text())["jobs"]) == 4
    rows = csv.DictReader((tmp_path / "results.csv").read_text().splitlines())
    assert [row["model.hidden"] for row in rows] == ["8", "8", "16", "16"]
    (tmp_path / "2" / "report.html").write_text("")
    ended(tmp_path)
    files = [str(tmp_path / name) for name in ("report.html", "results.json")]
    assert capsys.readouterr().out.splitlines()[-2:] == files
    page = page_of(tmp_path)
    assert "model.hidden=8 0.6000 ± 0.1414 (2 jobs)" in page
    assert page.count("href=") == 1
    assert 'href="./2/report.html"' in page
    assert "Median time per epoch" in page


def test_a_failed_job_is_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path, 0, ["batch_size=8"], **completed(0.5))
    job(tmp_path, 1, ["batch_size=0"], status="failed", error="batch_size=0: must be at least 1")
    with pytest.raises(SystemExit) as status:
        ended(tmp_path)
    assert status.value.code == 1
    output = capsys.readouterr()
    assert "failed" in output.out
    assert "1 of 2 jobs" in output.err
    assert collect(tmp_path)[1]["error"] == "batch_size=0: must be at least 1"


def test_an_ablation_tells_speed_up_against_its_first_job(tmp_path, capsys) -> None:
    seconds = {"baseline": 3.0, "hybrid": 2.0, "hybrid_drm": 1.5}
    for number, (name, median) in enumerate(seconds.items()):
        figures = "emulated" if number else "measured"
        job(tmp_path, number, [f"experiment={name}"], **completed(0.5, median, figures=figures))
    job(tmp_path, 3, ["experiment=two_stage"], status="failed", error="no memory")
    assert [each["speed_up"] for each in collect(tmp_path)] == [1.0, 1.5, 2.0, None]
    with pytest.raises(SystemExit):
        ended(tmp_path)
    shown = capsys.readouterr().out
    heading = next(line for line in shown.splitlines() if "speed-up" in line)
    assert "MTEPS" in heading
    row = next(line for line in shown.splitlines() if "hybrid_drm" in line)
    assert "1.5000" in row
    assert "jobs with emulated figures: 1, 2\n" in shown
    assert "2.0000" in row
    # The plot has a bar for each job.
    picture = (tmp_path / "results.svg").read_text()
    bars = ElementTree.fromstring(picture).iter(f"{SVG}rect")
    widths = [440.0, pytest.approx(293.3), 220.0, 0.0]
    assert [float(bar.attrib["width"]) for bar in bars] == widths
    assert {"experiment=baseline", "1.5 s, 2.00×, emulated", "failed"} <= set(texts(picture))


def test_a_sweep_over_caches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [(0.05, None, 2e6, 3.0), (0.05, 0.25, 1.5e6, 2.0), (0.1, 0.5, 1e6, 1.5)]
    for number, (ratio, hits, link, seconds) in enumerate(jobs):
        planner = "legion" if hits else "none"
        overrides = [f"cache_planner={planner}", f"cache_planner.ratio={ratio}"]
        moved = {"host": 0.0, "link": link, "peers": 0.0}
        cache = hits and {
            "measured": {"feature_hit_rate": 1.0, "topology_hit_rate": 1.0},  # of some epochs
            "whole_run": {"feature_hit_rate": hits, "topology_hit_rate": 0.0},
        }
        job(tmp_path, number, overrides, **completed(0.5, seconds), step_bytes=moved, cache=cache)
    ended(tmp_path)
    shown = capsys.readouterr().out
    rows = [line.replace("│", " ").split() for line in shown.splitlines() if line[:1] == "│"]
    assert rows == [
        ["0", "none", "0.05", "3.0000", "6.5000", "1.0000", "-", "-", "2.0000"],
        ["1", "legion", "0.05", "2.0000", "6.5000", "1.5000", "0.2500", "0.0000", "1.5000"],
        ["2", "legion", "0.1", "1.5000", "6.5000", "2.0000", "0.5000", "0.0000", "1.0000"],
    ]
    headings = [line for line in shown.splitlines() if line[:1] == "┃"]
    assert "cache_planner ┃" in headings[0]
    assert all(name in headings[1] for name in (".ratio", "rows hit", "link MB/step", "s/epoch"))
    told = "status completed, epochs 2, best epoch 1, valid accuracy 0.5000, test accuracy 0.5000"
    assert f"the same in all jobs: {told}\n" in shown


def test_what_differs_is_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path, 0, ["seed=0"], **completed(0.25))
    ended(tmp_path)
    shown = capsys.readouterr().out
    assert "test accuracy" in shown
    assert "the same in all jobs" not in shown
    job(tmp_path, 1, ["seed=1"], **completed(0.75))
    ended(tmp_path)
    shown = capsys.readouterr().out
    assert "0.2500" in shown
    assert "0.7500" in shown
    assert "all jobs: status completed, epochs 2, best epoch 1, valid accuracy 0.5000\n" in shown


@pytest.mark.parametrize(
    ("option", "compared"),
    [
        *((option, True) for option in ("+experiment", "device_plan", "runtime.prefetch")),
        *((option, False) for option in ("sampler.fanouts", "model", "runtimes")),
    ],
)
def test_only_ways_to_execute_are_compared(tmp_path: Path, option: str, compared: bool) -> None:
    job(tmp_path, 0, [f"{option}=a"], **completed(0.5, 2.0))
    job(tmp_path, 1, [f"{option}=b"], **completed(0.5, 1.0))
    assert collect(tmp_path)[1]["speed_up"] == (2.0 if compared else None)


def test_each_work_has_its_own_first_job(tmp_path: Path) -> None:
    """Two models on two plans: a model is not faster than the other, it does something else."""
    times = {("gcn", "cpu"): 4.0, ("gcn", "x2"): 2.0, ("sage", "cpu"): 9.0, ("sage", "x2"): 3.0}
    for number, ((model, plan), seconds) in enumerate(times.items()):
        job(tmp_path, number, [f"model={model}", f"device_plan={plan}"], **completed(0.5, seconds))
    assert [each["speed_up"] for each in collect(tmp_path)] == [1.0, 2.0, 1.0, 3.0]
    # A job without options is compared with none.
    other = tmp_path / "other"
    for number in range(2):
        job(other, number, [f"device_plan={number}"], **completed(0.5, 1.0))
        (other / str(number) / "config.yaml").unlink()
    assert [each["speed_up"] for each in collect(other)] == [None, None]


def test_other_folders_inside_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "told")
    job(tmp_path, 0, ["seed=0", "~experiment", "name=${oc.env:SECRET}"], **completed(0.5))
    job(tmp_path, 1, ["seed=1", "name=x"], **completed(0.5))
    job(tmp_path, 2, ["seed=2"], status="completed", epoch_time_s=[1])
    job(tmp_path, 3, ["seed=3"], **completed("0.5"))
    job(tmp_path, 4, ["seed=4"], **completed(0.5, figures=["measured"]))
    (tmp_path / "1" / "summary.json").write_text("[" * 100_000)
    for number, text in enumerate(("- !!python/name:os.system", "5", "[1", "hydra: 3")):
        folder = tmp_path / f"other{number}"
        (folder / ".hydra").mkdir(parents=True)
        (folder / "summary.json").write_text("{}")
        for name in ("overrides.yaml", "hydra.yaml"):
            (folder / ".hydra" / name).write_text(text)
    jobs = collect(tmp_path)
    assert [each["job"] for each in jobs] == [0, 1, 2, 3, 4]
    assert [each["status"] for each in jobs] == ["completed", *["failed"] * 4]
    # Text that OmegaConf would evaluate stays as it was typed.
    assert jobs[0]["options"]["name"] == "${oc.env:SECRET}"


def page_of(directory: Path) -> str:
    return (directory / "report.html").read_text()


def launched(directory: Path, launcher: str) -> None:
    ended(directory, runtime={"choices": {"hydra/launcher": launcher}})


def times(start: int, end: int) -> dict[str, str]:
    """Return when a job ran, in seconds of a minute."""
    return {
        "started": f"2026-01-31T12:00:{start:02}.000+00:00",
        "ended": f"2026-01-31T12:00:{end:02}.000+00:00",
    }


@pytest.mark.parametrize(
    ("launcher", "spans", "together"),
    [
        ("joblib", ((0, 9), (9, 20), (30, 40)), False),
        ("basic", ((0, 9), (8, 20), (30, 40)), True),
        ("submitit_local", ((30, 40), (0, 50), (50, 59)), True),
        ("basic", ((30, 40), (50, 59), (0, 30)), False),
    ],
)
def test_jobs_whose_times_overlap_have_no_speed_up(
    tmp_path, capsys, launcher, spans, together
) -> None:
    for number, span in enumerate(spans):
        summary = completed(0.5, 3.0 - number, **times(*span))
        job(tmp_path, number, [f"device_plan=p{number}"], **summary)
    launched(tmp_path, launcher)
    shown = capsys.readouterr().out
    found = json.loads((tmp_path / "results.json").read_text())["jobs"]
    speed_ups = [each["speed_up"] for each in found]
    assert speed_ups == ([None] * 3 if together else [1.0, 1.5, 3.0])
    assert ("jobs ran at the same time" in shown) == together
    rows = csv.DictReader((tmp_path / "results.csv").read_text().splitlines())
    assert [row["speed_up"] != "" for row in rows] == [not together] * 3
    picture = " ".join(texts((tmp_path / "results.svg").read_text()))
    assert ("1.50×" in picture) == (not together)
    assert ("at the same time" in picture) == together
    assert ("speed-up" in page_of(tmp_path)) == (not together)


def test_times_that_no_run_writes_leave_the_launcher_to_decide(tmp_path, capsys) -> None:
    for number, started in enumerate(("2026-01-31", "never")):
        job(
            tmp_path,
            number,
            [f"device_plan=p{number}"],
            **completed(0.5, started=started, ended="x"),
        )
    launched(tmp_path, "joblib")
    assert "jobs ran at the same time" in capsys.readouterr().out


def test_jobs_that_cache_nothing_have_a_reason_and_no_speed_up(tmp_path, capsys) -> None:
    reason = "2 of 2 devices cache nothing: the host aggregates"
    nothing = {"uncached": {"devices": 2, "of": 2, "reason": reason}}
    cached = {"cache": {"cliques": [[0], [1]], "whole_run": {"feature_hit_rate": 0.5}}}
    aggregating = {"cache": {"cliques": [[0], [1]], "whole_run": {"feature_hit_rate": None}}}
    jobs = [("none", 3.0, {}), ("pagraph", 2.0, aggregating | nothing), ("legion", 1.5, cached)]
    for number, (planner, seconds, more) in enumerate(jobs):
        job(tmp_path, number, [f"cache_planner={planner}"], **completed(0.5, seconds, **more))
    ended(tmp_path)
    shown = capsys.readouterr().out
    found = collect(tmp_path)
    assert [each["speed_up"] for each in found] == [1.0, None, 2.0]
    assert [each["caching"] for each in found] == [None, 0, 2]
    assert "devices caching" in shown
    assert f"jobs 1: {reason}\n" in shown
    assert f"jobs 1: {reason}." in page_of(tmp_path)
    # Without the job that caches, all jobs are executed the same.
    (tmp_path / "2" / "summary.json").unlink()
    assert [each["speed_up"] for each in collect(tmp_path)] == [None, None]


def test_jobs_beside_other_programs_have_no_speed_up(tmp_path, capsys) -> None:
    """Their times are shown, and the first job of the others is what is compared with."""
    cache = {"cliques": [[0]], "whole_run": {"feature_hit_rate": 0.5}, "cache_bytes": 2_500_000}
    for number, (load, seconds) in enumerate([(0.3, 3.0), (None, 2.0), (0.1, 1.0), (0.11, 4.0)]):
        more = {"other_load": load, "cache": cache}
        job(tmp_path, number, [f"device_plan=p{number}"], **completed(0.5, seconds, **more))
    ended(tmp_path)
    assert [each["speed_up"] for each in collect(tmp_path)] == [None, 1.0, 2.0, None]
    line = "jobs 0, 3 have no speed-up: other programs kept up to 30% of the cores busy while they"
    shown = capsys.readouterr().out
    assert line in shown
    assert line in page_of(tmp_path)
    assert "cache MB" in shown
    assert {each["cache_mb"] for each in collect(tmp_path)} == {2.5}


@pytest.mark.parametrize("width", [60, 100, 200])
def test_no_column_is_cut(tmp_path, capsys, monkeypatch, width: int) -> None:
    """A narrow terminal has fewer columns, and a line that names the others."""
    monkeypatch.setattr("gnnscale.report.sweep._FILE_WIDTH", width)
    for number, name in enumerate(("pagraph", "legion")):
        cache = {"whole_run": {"feature_hit_rate": 0.5 * number, "topology_hit_rate": 0.1}}
        more = {"step_bytes": {"host": 1e9, "link": 5e9, "peers": 0.0}, "cache": cache}
        job(tmp_path, number, [f"cache_planner={name}"], **completed(0.5 + number / 4, **more))
    ended(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line[:1] in "┃│"]
    assert all(len(line) <= width for line in table)
    assert "…" not in "".join(table)
    assert "0.7500" in table[-1]
    left_out = [line for line in lines if line.startswith("not shown for lack of room: ")]
    assert bool(left_out) == (width < 200)


@pytest.mark.parametrize("figure", [float("nan"), 1e300, 5e-324, 10**400, True, "1"])
def test_figures_that_no_run_has(tmp_path: Path, figure: object) -> None:
    job(tmp_path, 0, ["device_plan=a"], **completed(0.5))
    job(tmp_path, 1, ["device_plan=b"], **completed(0.5, figure))
    with pytest.raises(SystemExit):
        ended(tmp_path)
    assert collect(tmp_path)[1]["status"] == "failed"
    assert "expected the summary of a run" in page_of(tmp_path)
