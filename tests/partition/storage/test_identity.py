from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition import Hash, PartitionerConfig, Random
from gnnscale.partition.storage.identity import Identity, describe, identify, partition_place


@dataclass(frozen=True, kw_only=True)
class Deep(Hash):
    """Looks at hops, and holds another partitioner."""

    inner: PartitionerConfig = field(default_factory=Hash)
    sizes: tuple[int, ...] = (1, 2)
    depends_on_hops: ClassVar[bool] = True
    algorithm: ClassVar[str] = "deep"


def identity(config: PartitionerConfig, graph: Graph, num_hops: int = 2) -> Identity:
    return identify(config, graph, num_parts=2, num_hops=num_hops)


def test_what_decides_and_what_does_not(tiny_graph: Graph) -> None:
    found = identity(Random(seed=3, num_parts=7, store="somewhere"), tiny_graph)
    assert found.options == {"seed": 3}
    assert (found.algorithm, found.num_parts, found.num_hops) == ("random", 2, None)
    assert identity(Random(), tiny_graph, 2) == identity(Random(), tiny_graph, 3)
    assert identity(Deep(), tiny_graph, 2) != identity(Deep(), tiny_graph, 3)


def test_options_within_options_say_their_class(tiny_graph: Graph) -> None:
    options = identity(Deep(inner=Random(seed=1)), tiny_graph).options
    assert options["sizes"] == [1, 2]
    assert options["inner"]["_target_"] == "gnnscale.partition.by_id.Random"
    assert options["inner"]["seed"] == 1


def test_graphs_in_memory_are_told_apart(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    assert describe(graph) == describe(random_graph())
    assert describe(graph).num_train == 300
    indices = graph.indices.copy()
    indices[-1] ^= 1
    changed = [
        dataclasses.replace(graph, indices=indices),
        dataclasses.replace(graph, train_idx=graph.train_idx[1:]),
        random_graph(num_features=21),
    ]
    assert len({describe(each).content for each in (graph, *changed)}) == 4
    assert describe(dataclasses.replace(graph, content="abc")).content == "abc"


def test_ids_of_any_width_hash_alike(tiny_graph: Graph) -> None:
    wide = dataclasses.replace(tiny_graph, indices=tiny_graph.indices.astype(np.int64))
    assert describe(wide) == describe(tiny_graph)


def test_each_partition_has_a_place(tiny_graph: Graph, home: Path, tmp_path: Path) -> None:
    def place(config: PartitionerConfig, graph: Graph = tiny_graph, num_parts: int = 2) -> Path:
        return partition_place(config, identify(config, graph, num_parts=num_parts, num_hops=2))

    places = {place(each) for each in (Hash(), Random(), Random(seed=1), Deep())}
    places.add(place(Hash(), num_parts=3))
    places.add(place(Hash(), dataclasses.replace(tiny_graph, content="other")))
    assert len(places) == 6
    assert {each.parent for each in places} == {home / "partitions"}
    assert place(Hash()).name.startswith("tiny-hash-")
    assert place(Hash(store=f"{tmp_path}/x")) == tmp_path / "x"


@pytest.mark.parametrize("name", ["../../etc", "a/b c", "..", "é" * 200, "/"])
def test_a_name_never_leads_elsewhere(tiny_graph: Graph, home: Path, name: str) -> None:
    graph = dataclasses.replace(tiny_graph, name=name)
    place = partition_place(Hash(), identity(Hash(), graph))
    assert place.parent == home / "partitions"
    assert len(place.name) < 130
    assert not place.name.startswith(".")


@pytest.mark.parametrize(
    ("store", "reason"),
    [("", "not a path"), ("a\0b", "not a path"), ("/", "the file system's root")],
)
def test_places_that_no_partition_can_have(store: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^partitioner\.store=.*{reason}"):
        Hash(store=store)


def test_the_places_of_others(home: Path) -> None:
    for folder in (home, home / "graphs", home / "partitions"):
        with pytest.raises(ConfigError, match=r"name a directory of its own"):
            Hash(store=str(folder))
