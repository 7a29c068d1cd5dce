"""Generated graph with types, whose classes show in the types of edges."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import ConfigError, Float64Array, Int64Array, check_range
from gnnscale.data.structure_only import class_centroids, class_features
from gnnscale.data.typed_dataset import TypedDataset
from gnnscale.graph import Graph
from gnnscale.graph.store_format import MAX_FEATURES

#: Vertices are in memory, with a score for each class.
_MAX_VERTICES = 1 << 24
_MAX_CLASSES = 256
#: Least number of vertices for each class.
_VERTICES_OF_CLASS = 20
#: Edges of an item to tags.
_NUM_TAGS = 3

_Ends = tuple[Int64Array, Int64Array]


@dataclass(frozen=True, kw_only=True)
class TypedPartition(TypedDataset):
    """Users, items and tags in communities, which are the classes of users.

    A user buys items of the user's community and returns items of the opposite one, half of all
    communities further, both with probability ``within``, else any item; an item has tags of its
    community likewise. Half of the vertices are users, a twentieth are tags. Each edge type has its
    reverse. To a model that does not tell types apart, a user and one of the opposite community
    look alike. Features of users and items are the centroid of their community plus noise, and tags
    have none: features of a user alone predict little.

    ``attainable_accuracy`` in ``meta.json`` is the accuracy of an oracle that knows the parameters,
    the centroids and the communities of all items: an upper bound for a model.

    Attributes:
        num_vertices: number of vertices of all types.
        num_classes: number of communities, of equal size; even.
        degree: mean number of items that a user buys, and of those that a user returns.
        num_features: length of the features of users and items.
        within: probability that an edge is sampled by community.
        signal: half the typical distance between two centroids, in standard deviations.
        seed: seed of all but the split.
    """

    name: str = "typed-partition"
    split: str = "random"
    train_fraction: float = 0.3
    num_vertices: int = 20_000
    num_classes: int = 8
    degree: int = 8
    num_features: int = 16
    within: float = 0.5
    signal: float = 0.5
    seed: int = 0

    generated: ClassVar[bool] = True
    has_split: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("dataset.num_classes", self.num_classes, 2, _MAX_CLASSES)
        least = _VERTICES_OF_CLASS * self.num_classes
        check_range("dataset.num_vertices", self.num_vertices, least, _MAX_VERTICES)
        if self.num_classes % 2:
            raise ConfigError(f"dataset.num_classes={self.num_classes}: expected an even number")
        check_range("dataset.degree", self.degree, 1, 1000)
        check_range("dataset.num_features", self.num_features, 1, MAX_FEATURES)
        check_range("dataset.within", self.within, 0, 1)
        check_range("dataset.signal", self.signal, 0, 1e6)
        check_range("dataset.seed", self.seed, 0, 2**63 - 1)

    def raw_files(self) -> Sequence[Path]:
        """Return no files."""
        return ()

    def read_graph(self) -> Graph:
        """Sample communities, edges and features; note the attainable accuracy."""
        from gnnscale.data.typed_arrays import from_typed_arrays  # imports torch

        generator = np.random.Generator(np.random.Philox([self.seed, 4]))
        num_users, num_tags = self.num_vertices // 2, self.num_vertices // _VERTICES_OF_CLASS
        sizes = (num_users, self.num_vertices - num_users - num_tags, num_tags)
        users, items, tags = (
            generator.permutation(np.arange(size) % self.num_classes) for size in sizes
        )
        bought = self._edges(generator, users, items, self.degree)
        returned = self._edges(generator, self._opposite(users), items, self.degree)
        tagged = self._edges(generator, items, tags, _NUM_TAGS)
        centroids = class_centroids(
            self.num_classes, self.num_features, signal=self.signal, seed=self.seed
        )
        # One stream of noise: users come first.
        slices = class_features(np.concatenate([users, items]), centroids, seed=self.seed)
        rows = np.concatenate([*slices])
        graph = from_typed_arrays(
            {"user": rows[:num_users], "item": rows[num_users:], "tag": None},
            {
                ("user", "buys", "item"): bought,
                ("item", "bought_by", "user"): bought[::-1],
                ("user", "returns", "item"): returned,
                ("item", "returned_by", "user"): returned[::-1],
                ("item", "has", "tag"): tagged,
                ("tag", "of", "item"): tagged[::-1],
            },
            ("user", users),
            num_vertices={"tag": num_tags},
            num_classes=self.num_classes,
            name=self.name,
            advises=self._advises,
        )
        scores = rows[:num_users] @ centroids.T - (centroids**2).sum(axis=1) / 2
        scores = scores + self._evidence(bought, items, num_users)
        by_opposite = self._evidence(returned, items, num_users)
        scores += by_opposite[:, self._opposite(np.arange(self.num_classes))]
        accuracy = float((scores.argmax(axis=1) == users).mean())
        return replace(graph, origin=replace(graph.origin, attainable_accuracy=accuracy))

    def _opposite(self, communities: Int64Array) -> Int64Array:
        return (communities + self.num_classes // 2) % self.num_classes

    def _edges(
        self,
        generator: np.random.Generator,
        preferences: Int64Array,
        communities: Int64Array,
        degree: int,
    ) -> _Ends:
        """Return ``degree`` edges a source on average, of a random source each.

        With probability ``within`` an edge leads to a destination of the source's preference, else
        to any. Arguments are the preferred community of each source, and the community of each
        destination.
        """
        num_edges = degree * len(preferences)
        src = generator.integers(len(preferences), size=num_edges)
        by_community = np.argsort(communities, kind="stable")
        sizes = np.bincount(communities, minlength=self.num_classes)
        firsts = np.cumsum(sizes) - sizes
        preferred = preferences[src]
        offsets = np.floor(generator.random(num_edges) * sizes[preferred]).astype(np.int64)
        dst = by_community[firsts[preferred] + offsets]
        anywhere = generator.random(num_edges) >= self.within
        dst[anywhere] = generator.integers(len(communities), size=int(anywhere.sum()))
        return src, dst

    def _evidence(self, edges: _Ends, communities: Int64Array, num_sources: int) -> Float64Array:
        """Return the log-likelihood ``[num_sources, num_classes]`` of edges by preference.

        ``communities`` are those of destinations.
        """
        src, dst = edges
        share = np.bincount(communities, minlength=self.num_classes) / len(communities)
        chance = (1 - self.within) * share + self.within * np.eye(self.num_classes)
        evidence = np.log(np.maximum(chance, 1e-300)).T
        cells = src * self.num_classes + communities[dst]
        counts = np.bincount(cells, minlength=num_sources * self.num_classes)
        likelihood: Float64Array = counts.reshape(num_sources, -1) @ evidence
        return likelihood
