import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_line import one_line

import gnnscale
from gnnscale.api.seeds import listed_seeds

FEW: dict[str, Any] = {"epochs": 1, "hidden": 8, "fanouts": [3, 3], "batch_size": 64}


@pytest.mark.long
@pytest.mark.usefixtures("own_home")
def test_each_seed_has_a_run_and_all_have_a_report(graph: Any, tmp_path: Path) -> None:
    results = gnnscale.train(graph, **FEW, num_threads=1, seeds=[3, 5])
    assert isinstance(results, gnnscale.SeedResults)
    assert results.directory.parent == tmp_path / "outputs" / "sweep"
    assert [run.config.seed for run in results.runs] == [3, 5]
    assert [run.directory for run in results.runs] == [results.directory / name for name in "01"]
    metrics = [gnnscale.load(run.directory).test_metric for run in results.runs]
    assert results.test_metrics == metrics
    # The same figures as those of the command's sweep.
    found = json.loads((results.directory / "results.json").read_text())
    assert [job["options"] for job in found["jobs"]] == [{"seed": "3"}, {"seed": "5"}]
    (over_seeds,) = found["over_seeds"]
    assert over_seeds["test_metric"] == {"mean": results.mean, "std": results.std}
    assert (results.directory / "report.html").is_file()
    # A seed alone gives the run that it gives among others.
    alone = gnnscale.train(graph, **FEW, num_threads=1, seed=5)
    assert alone.test_metric == metrics[1]
    for directory, said in ((results.directory, "holds a sweep"), (alone.directory, "holds a run")):
        with one_line(said, begins=f"directory={directory}: "):
            gnnscale.train(graph, **FEW, seeds=2, directory=directory)
    known = replace(results.runs[0], test_metrics={results.runs[0].metric: 0.5})
    other = replace(known, test_metrics={known.metric: 0.75})
    none = replace(known, test_metrics={})
    several = replace(results, runs=(known, other, none))
    assert (several.mean, several.std) == (0.625, statistics.stdev([0.5, 0.75]))
    assert "test accuracy 0.6250 ± 0.1768 over 3 seeds, defined in 2, directory=" in repr(several)
    assert "test accuracy 0.5000 over 1 seeds" in repr(replace(results, runs=(known,)))
    undefined = replace(results, runs=(none,))
    assert (undefined.mean, undefined.std) == (None, None)
    assert "not defined over 1 seeds" in str(undefined)


def test_seeds_are_a_number_or_a_list() -> None:
    assert listed_seeds(None, {"seed": 1}, "run") is None
    assert listed_seeds(3, {}, None) == listed_seeds(np.int64(3), {}, None) == [0, 1, 2]
    assert listed_seeds(range(4, 6), {}, None) == listed_seeds(np.array([4, 5]), {}, None) == [4, 5]
    for seeds in (0, -1, 10_001, True, 2.5, "3", [], [1, 1], [-1], [2**63], [0.5], {1, 2}, ["a"]):
        with one_line(begins="seeds="):
            listed_seeds(seeds, {}, None)
    with one_line(begins="seeds=2: expected none beside seed=1"):
        listed_seeds(2, {"seed": 1}, None)
    with one_line(begins="seeds=2: expected none with resume"):
        listed_seeds(2, {}, "run")
