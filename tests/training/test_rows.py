"""Runs over task rows: vertices as of cut-offs."""

import pytest
from in_memory import InMemory
from timed_shop import future_shop, timed_shop

OPTIONS = (
    *("model=rsage", "model.hidden=16", "model.dropout=0", "sampler.fanouts=[8,4]"),
    *("batch_size=64", "optimizer.lr=0.01", "num_threads=1"),
)


def test_rows_are_learned(run, tmp_path) -> None:
    data = InMemory(graph=timed_shop())
    result = run(tmp_path, *OPTIONS, "epochs=15", dataset=data)
    assert result.graph.split_of == "rows"
    assert result.graph.split == (360, 120, 120)
    assert result.test_metric > 0.85


@pytest.mark.parametrize(("time", "least", "most"), [("null", 0.3, 0.7), ("none", 0.99, 1.0)])
def test_the_rule_hides_what_only_the_future_tells(run, tmp_path, time, least, most) -> None:
    data = InMemory(graph=future_shop())
    result = run(tmp_path, *OPTIONS, "epochs=30", f"sampler.time={time}", dataset=data)
    assert least <= result.test_metric <= most
