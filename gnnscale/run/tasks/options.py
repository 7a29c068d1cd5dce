"""Options of each prediction task, configuration group ``task``; importable without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gnnscale.core import MAX_SEED, ConfigError, brief, check_choice, check_range
from gnnscale.core.config.untrusted import names
from gnnscale.graph import Graph, InputTypes, SplitLabels
from gnnscale.run.tasks.task_config import TaskConfig, TaskInputs

if TYPE_CHECKING:
    from gnnscale.nn import ModelConfig, TrainableModel
    from gnnscale.run.tasks.base import Task


#: Decoders from the rows of two vertices to the score of an edge: dot product, or MLP.
DECODERS = ("dot", "mlp")
#: Losses of an edge and its negatives.
LINK_LOSSES = ("bce", "bpr", "softmax")
#: Distributions of negatives among candidates.
NEGATIVES = ("uniform", "popular")
#: Edges that are left out of the ranking of a source's candidates; ``all`` by time alone.
FILTERS = ("known", "none")
TIMED_FILTERS = (*FILTERS, "all")
#: Rules by which edges are held out.
LINK_SPLITS = ("random", "time")
#: Value of ``num_candidates`` that ranks an edge's destination among all candidates.
ALL = "all"
_DEFAULT_K = (20,)
_MAX_NEGATIVES = 1 << 10
_MAX_CANDIDATES = 1 << 16


def _build_rows(
    model: ModelConfig, num_features: int, num_edge_features: int, types: InputTypes | None
) -> TrainableModel:
    """Build a GNN with output rows of ``model.hidden`` features."""
    width = model.row_width
    assert width is not None  # other models are refused before
    if types is not None:
        return model.build_for(types, num_classes=width)
    return model.build(
        num_features=num_features, num_classes=width, num_edge_features=num_edge_features
    )


@dataclass(frozen=True, kw_only=True)
class VertexPrediction(TaskConfig):
    """Prediction of vertex labels, by the graph's own split.

    In a graph with types and labels of several, all labeled types are predicted at once: the loss
    is the sum over types of the mean over a type's training vertices, and the mean of the types'
    first metrics selects the best epoch.

    In a graph with task rows, rows are predicted: each is a vertex, a cut-off and a label.

    Attributes:
        target: vertex type to predict, or a list of them, in a graph with labels of several vertex
            types. None: all labeled types.
    """

    target: Any | None = field(default=None, metadata=names("text"))

    def __post_init__(self) -> None:
        for name in self._targets:
            if not isinstance(name, str):
                raise ConfigError(
                    f"task.target={brief(self.target)}: expected a vertex type, or a list of them"
                )

    @property
    def _targets(self) -> list[Any]:
        if self.target is None:
            return []
        return (
            list(self.target)
            if isinstance(self.target, Sequence | set) and not isinstance(self.target, str)
            else [self.target]
        )

    def labeled(self, graph: Graph) -> Graph:
        """Return ``graph`` with labels of the types ``target`` alone, if several have labels.

        ConfigError: one of them has no labels.
        """
        chosen = self._targets
        if chosen and graph.rows is not None:
            raise ConfigError(
                f"task.target={brief(self.target)}: expected null, as task rows of {graph.name} "
                "name the vertices to predict"
            )
        if not chosen or not graph.num_classes:
            return graph
        target = None if graph.input_types is None else graph.input_types.target
        labeled = graph.targets or (() if target is None else (target,))
        for name in chosen:
            if name not in labeled:
                raise ConfigError(
                    f"task.target={brief(name)}: expected a vertex type of {graph.name} with "
                    f"labels, {', '.join(labeled) or 'of which there is none'}"
                )
        return graph if {*chosen} == {*labeled} else graph.of_target(*chosen)

    def with_cutoffs(self, graph: Graph, time: str | None) -> Graph:
        """Return ``graph`` with a row for each labeled vertex, if ``time`` is a rule.

        The cut-off is the vertex's own time. A graph with rows is returned as it is. ConfigError:
        labeled vertices have no times.
        """
        from gnnscale.run.tasks.cutoffs import with_own_cutoffs

        return graph if time in (None, "none") else with_own_cutoffs(graph, time)

    def labels(self, graph: Graph) -> SplitLabels:
        """Return the graph's task rows, or ``graph``, which has the labels of vertices."""
        return graph if graph.rows is None else graph.rows

    def open(self, graph: Graph, split_path: Path | None, inputs: TaskInputs) -> Task:
        """Return the task by the graph's own split; ConfigError: a user-defined metric fails."""
        from gnnscale.run.tasks.base import VertexTask
        from gnnscale.run.tasks.rows import RowTask
        from gnnscale.run.tasks.types import TypesTask

        of_labels: type[TypesTask | VertexTask | RowTask]
        of_labels = TypesTask if graph.targets else VertexTask
        if graph.rows is not None:
            of_labels = RowTask
        task = of_labels(graph=graph, loss=inputs.loss, metrics=inputs.metrics)
        task.try_metrics()
        return task


@dataclass(frozen=True, kw_only=True)
class EdgePrediction(TaskConfig):
    """Prediction of edge labels (classes or values), by the graph's own split of labeled edges.

    A mini-batch has ``batch_size`` edges. An MLP with one hidden layer computes the output from the
    rows of both ends, ``model.hidden`` features each, and the features of the edge.

    If labeled edges have times, the rows of an edge's ends are as of its time: messages are sent
    along earlier edges alone, by default.

    Attributes:
        own_features: whether the output is computed from features of the edge too. ``false``, with
            times of edges: layers read features of earlier edges, which may tell of their labels.
    """

    compares_rows: ClassVar[bool] = True

    own_features: bool = True

    @property
    def reads_edge_features(self) -> bool:
        """Whether the decoder reads features of the predicted edge, even if layers read none."""
        return self.own_features

    def with_cutoffs(self, graph: Graph, time: str | None) -> Graph:
        """Return ``graph`` whose mini-batches are as of the times of labeled edges, if any.

        ConfigError: ``time`` is a rule, and labeled edges have no times; or there are none, and
        ``own_features`` is false.
        """
        from gnnscale.run.tasks.cutoffs import with_edge_cutoffs

        graph = with_edge_cutoffs(graph, time)
        if not (self.own_features or graph.samples_by_time):
            raise ConfigError(
                "task.own_features=false: expected labeled edges with times and a rule "
                f"sampler.time, got {graph.name} as of no times, where messages along a predicted "
                "edge have its features"
            )
        return graph

    def labels(self, graph: Graph) -> SplitLabels:
        """Return the labels of the edges, or raise ConfigError."""
        if graph.edge_labels is None:
            raise ConfigError(
                f"task=edges: edges of {graph.path or graph.name} have no labels; set "
                "dataset.edge_label to their column"
            )
        return graph.edge_labels

    def edge_type_in(self, graph: Graph) -> int:
        """Return the first edge type between the vertex types that labeled edges join.

        ConfigError: ``graph`` has several edge types, and no list of labeled edges.
        """
        from gnnscale.run.tasks.base import edge_type_of_labels

        return edge_type_of_labels(graph)

    def open(self, graph: Graph, split_path: Path | None, inputs: TaskInputs) -> Task:
        """Return the task by the graph's own split.

        ConfigError: edges have no labels, or a user-defined metric fails.
        """
        from gnnscale.run.tasks.base import EdgeTask

        self.labels(graph)
        task = EdgeTask(
            graph=graph,
            loss=inputs.loss,
            metrics=inputs.metrics,
            own_features=self.own_features,
        )
        task.try_metrics()
        return task

    def build(
        self,
        model: ModelConfig,
        *,
        num_features: int,
        num_classes: int,
        num_edge_features: int = 0,
        types: InputTypes | None = None,
    ) -> TrainableModel:
        """Build a model with an MLP over the output rows of both ends, and the edge's features."""
        from gnnscale.nn.link_decoder import EdgeNetwork, with_network

        gnn = _build_rows(model, num_features, num_edge_features, types)
        width = num_edge_features if self.own_features else 0
        return with_network(gnn, EdgeNetwork(gnn.widths[-1], width, num_classes))


@dataclass(frozen=True, kw_only=True)
class LinkPrediction(TaskConfig):
    """Prediction of edges (link prediction) with held-out validation and test edges.

    Messages are sent along training edges, except the edges of the current mini-batch and their
    copies. A mini-batch has ``batch_size`` edges. A vertex's output row has ``model.hidden``
    features.

    In a graph with types, edges of one edge type are predicted; its reverse, an edge type that has
    exactly its edges the other way, is split with it. Edges of all other types send messages.
    Negatives and candidates are of the destination type.

    With ``split=time`` an edge is predicted as of its time: messages are sent along earlier edges
    alone, held-out ones too; negatives and candidates exist at that time, and negatives are no
    edges by then. An edge is predicted once for each time at which it occurs.

    Attributes:
        edge_type: edge type to predict, such as ``user-buys-item``, in a graph with types. None:
            the only edge type of the graph.
        num_negatives: negative destinations per training edge, sampled in each step.
        negatives: distribution of the negatives, one of ``NEGATIVES``: uniform, or in proportion to
            (1 + training in-degree) ** 0.75.
        decoder: decoder from two rows to a score, one of ``DECODERS``.
        loss: loss of an edge and its negatives, one of ``LINK_LOSSES``: ``bce``, binary
            cross-entropy; ``bpr``, -log sigmoid(score of the edge - score of a negative); or
            ``softmax``, -log of the edge's share of a softmax, which hard negatives lower most.
        split: one of ``LINK_SPLITS``: ``random`` by ``split_seed``; or ``time``, in which training
            edges are before validation edges, and these before test edges.
        valid_from: with ``split=time``, first time of validation, a date such as ``2024-01-31`` or
            an integer in the graph's unit. None: by the fractions.
        test_from: with ``split=time``, first time of the test, as ``valid_from``.
        valid_fraction: share of validation edges.
        test_fraction: share of test edges; with ``split=time`` the latest.
        split_seed: seed of the split.
        directed: split an edge and its reverse independently. The reverse of a held-out edge may
            then send messages, which reveals the edge. ``false`` keeps an edge, its reverse and its
            copies in one part.
        num_candidates: vertices against which an edge's destination is ranked in validation and
            test: a number, fixed by the seed, or ``all`` candidates.
        filter: edges that are left out of a ranking among all candidates: ``known``, a source's
            training edges and, in the test, its validation edges, with ``split=time`` its edges
            before the time of the predicted one; ``none``; or, with ``split=time``, ``all``.
        candidates: file of the vertices that are negatives and candidates, ``.npy`` of ids or a
            table with a column ``id``. None: with ``candidate_column`` the vertices' table of
            ``dataset=tables``, without it all vertices.
        candidate_column: column of that table with kinds of vertices; candidates of an edge then
            have its destination's kind. None: all candidates are of one kind.
        candidate_kind: the only kind that is a candidate; None: each kind is.
        hits: each k of Hits@k, the share of edges whose destination ranks among the first k.
        k: each k of recall@k, MAP@k and NDCG@k, means over sources ranked among all candidates;
            recall at the first k selects the best epoch, MRR if ``k`` is empty. None: 20 with
            ``num_candidates=all``.
    """

    divides_edges: ClassVar[bool] = True
    compares_rows: ClassVar[bool] = True

    edge_type: str | None = field(default=None, metadata=names("text"))
    num_negatives: int = 1
    negatives: str = "uniform"
    decoder: str = "dot"
    loss: str = "bce"
    split: str = "random"
    valid_from: str | None = field(default=None, metadata=names("text"))
    test_from: str | None = field(default=None, metadata=names("text"))
    valid_fraction: float = 0.05
    test_fraction: float = 0.1
    split_seed: int = 0
    directed: bool = False
    num_candidates: int | str = 100
    filter: str | None = None
    candidates: str | None = field(default=None, metadata=names("place"))
    candidate_column: str | None = field(default=None, metadata=names("text"))
    candidate_kind: str | None = field(default=None, metadata=names("text"))
    hits: list[int] = field(default_factory=lambda: [10])
    k: list[int] | None = None

    def __post_init__(self) -> None:
        check_range("task.num_negatives", self.num_negatives, 1, _MAX_NEGATIVES)
        check_choice("task.negatives", self.negatives, NEGATIVES)
        check_choice("task.decoder", self.decoder, DECODERS)
        check_choice("task.loss", self.loss, LINK_LOSSES)
        check_range("task.split_seed", self.split_seed, 0, MAX_SEED)
        self._check_ranking()
        self._check_split()
        if self.candidate_kind is not None and self.candidate_column is None:
            raise ConfigError(
                f"task.candidate_kind={brief(self.candidate_kind)}: expected task.candidate_column "
                "with it, the column of kinds"
            )
        held_out = self.valid_fraction, self.test_fraction
        if not (min(held_out) > 0 and sum(held_out) < 1):  # true for NaN
            raise ConfigError(
                f"task.valid_fraction={self.valid_fraction}, task.test_fraction="
                f"{self.test_fraction}: expected numbers above 0 with a sum below 1"
            )

    def _check_ranking(self) -> None:
        """Raise ConfigError for metrics that are out of range, repeat, or need all candidates."""
        ranks_all = self.num_candidates == ALL
        if not ranks_all:
            if isinstance(self.num_candidates, str):
                raise ConfigError(
                    f"task.num_candidates={brief(self.num_candidates)}: expected a number of "
                    "vertices, or all"
                )
            check_range("task.num_candidates", self.num_candidates, 1, _MAX_CANDIDATES)
        for option, cutoffs in (("hits", self.hits), ("k", self.k or [])):
            for cutoff in cutoffs:
                check_range(f"task.{option}", cutoff, 1, _MAX_CANDIDATES)
            if len(set(cutoffs)) < len(cutoffs):
                raise ConfigError(f"task.{option}={brief(cutoffs)}: expected each number once")
        if self.filter is not None:
            allowed = TIMED_FILTERS if self.split == "time" else FILTERS
            check_choice("task.filter", self.filter, allowed)
        for option, value in (("k", self.k), ("filter", self.filter)):
            if value is not None and not ranks_all:
                raise ConfigError(
                    f"task.{option}={brief(value)}: expected task.num_candidates=all with it, got "
                    f"{self.num_candidates}; a source's edges are then ranked in one list"
                )

    def _check_split(self) -> None:
        """Raise ConfigError for a bound of another rule, or without the other bound."""
        check_choice("task.split", self.split, LINK_SPLITS)
        bounds = {"valid_from": self.valid_from, "test_from": self.test_from}
        for name, value in bounds.items():
            if value is not None and self.split != "time":
                raise ConfigError(
                    f"task.{name}={brief(value)}: expected task.split=time, got {self.split}"
                )
            if value is None and any(other is not None for other in bounds.values()):
                raise ConfigError(
                    f"task.{name}: expected a time with the other bound of task.split=time, as "
                    "2024-01-31; task.valid_fraction and task.test_fraction hold out the latest "
                    "edges without both"
                )
        if self.split == "time" and self.directed:
            raise ConfigError(
                "task.directed=true: expected false with task.split=time, where messages along "
                "an edge and its reverse are earlier than the predicted edge"
            )

    def with_cutoffs(self, graph: Graph, time: str | None) -> Graph:
        """Return ``graph``, with ``split=time`` as of the times of edges.

        ConfigError: it has no times, or ``time`` is ``none``, or a rule without ``split=time``.
        """
        if self.split != "time":
            return super().with_cutoffs(graph, time)
        from gnnscale.run.tasks.timed_split import check_times

        check_times(graph)
        if time == "none":
            raise ConfigError(
                "sampler.time=none: expected a rule of time with task.split=time, whose held-out "
                "edges are in the graph of messages"
            )
        return replace(graph, samples_by_time=True)

    def labeled(self, graph: Graph) -> Graph:
        """Return ``graph``; ConfigError: it has task rows, which predict vertices."""
        if graph.rows is not None:
            raise ConfigError(
                f"task=links: expected a graph without task rows, got {graph.name}, whose rows "
                "predict vertices; add task=vertices"
            )
        return graph

    def make(self, graph: Graph) -> Path | None:
        """Write the edge split unless it exists; return its directory."""
        self.labeled(graph)
        from gnnscale.run.tasks.edge_split import identify_split, make_split
        from gnnscale.run.tasks.links import chosen_edge_type

        if self.split == "time":
            from gnnscale.run.tasks.timed_split import identify_timed_split, make_timed_split

            by_time = identify_timed_split(
                graph,
                bounds=(self.valid_from, self.test_from),
                fractions=(self.valid_fraction, self.test_fraction),
                edge_type=chosen_edge_type(self.edge_type, graph),
            )
            return make_timed_split(graph, by_time)
        identity = identify_split(
            graph,
            valid_fraction=self.valid_fraction,
            test_fraction=self.test_fraction,
            seed=self.split_seed,
            directed=self.directed,
            edge_type=chosen_edge_type(self.edge_type, graph),
        )
        return make_split(graph, identity)

    def edge_type_in(self, graph: Graph) -> int:
        """Return the position of the edge type to predict in the schema of ``graph``."""
        names = [str(edges) for edges in graph.schema.edge_types]
        return names.index(self.edge_type) if self.edge_type in names else 0

    def open(self, graph: Graph, split_path: Path | None, inputs: TaskInputs) -> Task:
        """Return the task over the edge split in ``split_path``, with candidates from their file.

        ConfigError: candidates do not fit the graph, or not all destinations are candidates.
        GraphError: the file of candidates is damaged.
        """
        from gnnscale.run.tasks import links
        from gnnscale.run.tasks.edge_split import open_split
        from gnnscale.run.tasks.timed_links import TimedLinkTask, check_destinations
        from gnnscale.run.tasks.timed_split import TimedEdgeSplit, open_timed_split

        assert split_path is not None
        by_time = self.split == "time"
        split = (open_timed_split if by_time else open_split)(split_path, graph)
        candidates = None
        if graph.types is not None and self.candidate_column is not None:
            raise ConfigError(
                f"task.candidate_column={brief(self.candidate_column)}: expected null for "
                f"{graph.name}, whose vertices have types; candidates are of the destination type"
            )
        if self.candidates is not None or self.candidate_column is not None:
            selection = self.candidates, self.candidate_column, self.candidate_kind
            candidates, option = links.read_candidates(
                *selection, graph, inputs.dataset, split.relation.edge_type
            )
            if isinstance(split, TimedEdgeSplit):
                split = check_destinations(split, candidates, option)
            else:
                split = links.with_candidate_destinations(split, candidates, option)
        elif graph.types is not None:
            candidates = links.typed_candidates(graph.types, split.relation.edge_type)
        options: dict[str, Any] = {
            "candidates": candidates,
            "num_negatives": self.num_negatives,
            "negatives": self.negatives,
            "loss": self.loss,
            "hits": tuple(self.hits),
            "k": _DEFAULT_K if self.k is None else tuple(self.k),
            "num_candidates": None if isinstance(self.num_candidates, str) else self.num_candidates,
            "filters_known": self.filter != "none",
            "seed": self.split_seed,
        }
        if isinstance(split, TimedEdgeSplit):
            return TimedLinkTask(split=split, filters_all=self.filter == "all", **options)
        return links.LinkTask(split=split, **options)

    def build(
        self,
        model: ModelConfig,
        *,
        num_features: int,
        num_classes: int,
        num_edge_features: int = 0,
        types: InputTypes | None = None,
    ) -> TrainableModel:
        """Build a GNN with output rows of ``model.hidden`` features, and a decoder of row pairs."""
        from gnnscale.nn.link_decoder import initialize_rows, make_decoder, with_decoder

        gnn = _build_rows(model, num_features, num_edge_features, types)
        initialize_rows(gnn)
        return with_decoder(gnn, make_decoder(self.decoder, gnn.widths[-1]))
