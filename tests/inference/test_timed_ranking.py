"""Ranks of edges as of their times, against loops over edges and candidates."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from timed_visits import timed_visits

from gnnscale import Graph
from gnnscale.backend.typed_loading import open_loader
from gnnscale.core import ranking
from gnnscale.inference import timed_ranking
from gnnscale.inference.evaluate import open_examiner
from gnnscale.inference.predictor import Predictor
from gnnscale.nn.options import GraphSAGE
from gnnscale.nn.typed_options import RSAGE
from gnnscale.run.inputs import EvaluationOptions
from gnnscale.run.tasks.cutoffs import before_edges
from gnnscale.run.tasks.links import typed_candidates
from gnnscale.run.tasks.options import LinkPrediction
from gnnscale.run.tasks.timed_links import TimedLinkTask
from gnnscale.run.tasks.timed_split import open_timed_split
from gnnscale.sampling import NeighborSampling
from gnnscale.sampling.timed_links import timed_candidates

SAMPLER = NeighborSampling(fanouts=[-1, -1])
OPTIONS = EvaluationOptions(
    model_name="sage",
    inference="exact",
    sampler=SAMPLER,
    batch_size=10,
    seed=0,
    num_threads=1,
    compute_dtype="float32",
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))


def opened(tmp_path, by_type: bool, **options):
    timed_visits(by_type=by_type, count=160).save(tmp_path / "store")
    graph = Graph.open(tmp_path / "store")
    chosen = {"edge_type": "user-visits-place"} if by_type else {}
    config = LinkPrediction(split="time", valid_fraction=0.2, test_fraction=0.1, **chosen)
    split = open_timed_split(config.make(graph), graph)
    candidates = typed_candidates(graph.schema, 0) if by_type else None
    task = TimedLinkTask(split=split, candidates=candidates, num_negatives=1, seed=0, **options)
    torch.manual_seed(0)
    model = config.build_for(task.graph, RSAGE(hidden=8) if by_type else GraphSAGE(hidden=8))
    return task, model.eval()


def rows_at(task, model, vertices, time):
    """Return the rows of vertices as of a time, by one mini-batch of all allowed neighbors."""
    rule = before_edges(SAMPLER).time_rule(has_cutoffs=True)
    sampler = SAMPLER.timed_sampler(task.graph, rule, seed=0, num_threads=1)
    ids = np.asarray(vertices, task.graph.indices.dtype)
    batch = sampler.sample_units(ids, np.full(len(ids), time), 0)
    with torch.no_grad():
        return model(batch, open_loader(task.graph, model, num_threads=1).load(batch))


@pytest.mark.parametrize("by_type", [False, True])
@pytest.mark.parametrize("left_out", ["known", "none", "all"])
def test_ranks_among_all_candidates(tmp_path, by_type, left_out, monkeypatch) -> None:
    monkeypatch.setattr(timed_ranking, "_UNITS", 200)
    options = {"filters_known": left_out != "none", "filters_all": left_out == "all"}
    task, model = opened(tmp_path, by_type, num_candidates=None, k=(5,), hits=(3,), **options)
    examiner = open_examiner(task, model, Predictor(model, task.graph, OPTIONS))
    (found,) = examiner.measure(["test"])
    known = timed_candidates(task.graph, 0, None).known_edges
    vertices = np.arange(40, 80) if by_type else np.arange(80)
    ranks = []
    for (source, target), time in zip(task.split.test, task.split.test_times, strict=True):
        rows = rows_at(task, model, [source, *vertices[vertices != source]], time)
        same = {e[1] for e, t in zip(task.split.test, task.split.test_times, strict=True)
                if t == time and e[0] == source}  # fmt: skip
        scores = dict(zip(vertices[vertices != source], model.decoder(rows[:1], rows[1:]).tolist(),
                          strict=True))  # fmt: skip
        out = set()
        if left_out != "none":
            out = set(known.targets(int(source), None if left_out == "all" else int(time)))
        scores = {v: score for v, score in scores.items() if v not in out - same}
        own = scores.pop(target)
        above = sum(score > own + 1e-6 for score in scores.values())
        equal = sum(abs(score - own) <= 1e-6 for score in scores.values())
        ranks.append(1 + above + equal / 2)
    assert found["mrr"] == pytest.approx(float(np.mean(1 / np.array(ranks))), rel=0.02)
    assert found["hits@3"] == pytest.approx(np.mean(np.array(ranks) <= 3), abs=0.13)


def test_ranks_among_drawn_candidates(tmp_path) -> None:
    task, model = opened(tmp_path, False, num_candidates=10, hits=(3,))
    examiner = open_examiner(task, model, Predictor(model, task.graph, OPTIONS))
    found, again = examiner.measure(["valid", "valid"])
    assert found == again
    split = task.split
    negatives = timed_candidates(task.graph, 0, None)
    rows = np.arange(len(split.valid))
    drawn = negatives.draw(
        rows, split.valid, split.valid_times, 10, seed=0, step=timed_ranking.STEPS["valid"]
    )
    scores = []
    for ends, others, time in zip(split.valid, drawn, split.valid_times, strict=True):
        ids, positions = np.unique([*ends, *others], return_inverse=True)
        of_ids = rows_at(task, model, ids, time)[positions]
        scores.append(model.decoder(of_ids[:1], of_ids[1:]).tolist())
    expected = ranking.mean_reciprocal_rank(ranking.ranks(np.array(scores, np.float32)))
    assert found["mrr"] == pytest.approx(expected, rel=1e-3)
    popular = examiner.measure_popularity("test")
    assert 0 < popular["mrr"] < 1


def test_popularity_counts_training_edges_alone(tmp_path) -> None:
    task, _ = opened(tmp_path, True, num_candidates=10, hits=(3,))
    targets = np.asarray(task.split.train)[:, 1]
    np.testing.assert_array_equal(task.popularity, np.bincount(targets, minlength=80))
    assert task.held_out_pairs == []
    assert replace(task, hits=()).measures == ("mrr",)
