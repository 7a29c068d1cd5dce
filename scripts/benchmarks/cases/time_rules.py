"""Edges that break a rule of time among those that are sampled: none, by an independent check.

Each rule samples at least ``--edges`` edges of R-MAT graphs with and without types, with 1 and 2
threads. The check looks up the time of each edge by its position in the graph, and bounds it by the
cut-off of its destination; it shares no code with the sampler, nor with ``sampler.check_times``.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks import timed_graphs
from benchmarks.runner import show

RULES: dict[str, dict[str, Any]] = {
    "seed": {},
    "seed, strict": {"bound": "strict"},
    "seed, window": {"window": 200_000},
    "seed, last": {"strategy": "last"},
    "destination": {"rule": "destination"},
    "destination, inclusive": {"rule": "destination", "bound": "inclusive"},
    "walk": {"rule": "walk"},
    "walk, forward": {"rule": "walk", "direction": "forward"},
    "walk, forward, strict": {"rule": "walk", "direction": "forward", "bound": "strict"},
}
FANOUTS = [15, 10]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--edges", type=float, default=1e7, help="edges of each rule (1e7)")
    parser.add_argument("--vertices", type=int, default=200_000, help="vertices of a graph")


def homogeneous(num_vertices: int) -> Any:
    from gnnscale import ops

    src, dst = ops.rmat_edges(num_vertices, 25 * num_vertices, 0.57, 0.19, 0.19, 0, 2)
    return _timed(num_vertices, src, dst, None)


def typed(num_vertices: int) -> Any:
    """Return a graph of two types of vertices and three of edges, of which one has no times."""
    from gnnscale import ops
    from gnnscale.graph import GraphSchema

    half = num_vertices // 2
    names = [("user", "buys", "item"), ("item", "by", "user"), ("user", "knows", "user")]
    schema = GraphSchema.of({"user": half, "item": half}, names)
    rows, sources = [], []
    for number in range(len(names)):
        src, dst = ops.rmat_edges(half, 12 * half, 0.57, 0.19, 0.19, number, 2)
        numbers = schema.rows(number)
        rows.append(numbers.start + dst * numbers.step)
        sources.append(src + schema.vertices(int(schema.sources[number])).start)
    row, source = np.concatenate(rows), np.concatenate(sources)
    return _timed(schema.num_rows, source, row, schema)


def _timed(num_rows: int, src: Any, row: Any, schema: Any) -> Any:
    order = np.lexsort((src, row))
    indptr = np.searchsorted(row[order], np.arange(num_rows + 1))
    indices, times = timed_graphs.timed_lists(indptr, src[order].astype(np.int32))
    if schema is not None:
        numbers = schema.rows(2)
        of_row = np.repeat(np.arange(num_rows), np.diff(indptr))
        is_last = np.isin(of_row, np.arange(numbers.start, numbers.stop, numbers.step))
        times[is_last] = np.iinfo(np.int64).min
    return timed_graphs.timed_graph(indptr, indices, times, schema)


def violations(graph: Any, sampled: Any, rule: dict[str, Any]) -> tuple[int, int]:
    """Return how many edges of a sample break the rule, and the number of all."""
    schema, broken, total = graph.schema, 0, 0
    strict = rule.get("bound", "strict" if rule.get("rule") == "destination" else "inclusive")
    sizes = np.array(sampled.type_sizes[-1])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    none = np.iinfo(np.int64).min
    since = np.full(len(sampled.cutoffs), none)
    for hop in sampled.hops:
        reached = since.copy()
        for number, block in enumerate(hop):
            first_source = starts[schema.sources[number]]
            first_destination = starts[schema.destinations[number]]
            count = len(block.indptr) - 1
            to = first_destination + np.repeat(np.arange(count), np.diff(block.indptr))
            source = first_source + block.indices
            times, cutoffs = graph.times.edges[block.positions], sampled.cutoffs[to]
            is_timed = times != none
            late = times >= cutoffs if strict == "strict" else times > cutoffs
            if "window" in rule:
                late |= times <= cutoffs - rule["window"]
            if rule.get("direction") == "forward":
                late |= times <= since[to] if strict == "strict" else times < since[to]
                reached[source] = np.where(is_timed, times, since[to])
                late |= is_timed & (sampled.cutoffs[source] != cutoffs)
            elif rule.get("rule", "seed") == "seed":
                late |= sampled.cutoffs[source] != cutoffs
            else:
                late |= sampled.cutoffs[source] != times
            late = np.where(is_timed, late, sampled.cutoffs[source] != cutoffs)
            rows = schema.rows(number)
            first = schema.vertices(int(schema.destinations[number])).start
            row = rows.start + (sampled.input_vertices[to] - first) * rows.step
            late |= (block.positions < graph.indptr[row]) | (
                block.positions >= graph.indptr[row + 1]
            )
            late |= graph.indices[block.positions] != sampled.input_vertices[source]
            broken += int(late.sum())
            total += len(late)
        since = reached
    return broken, total


def measured(graph: Any, rule: dict[str, Any], threads: int, edges: float) -> tuple[int, int]:
    """Return how many edges break the rule, and the number of all, over mini-batches."""
    from gnnscale.ops import NativeSampler
    from gnnscale.sampling import TimeRule

    native, numbers = NativeSampler(graph), len(graph.schema.edge_types)
    broken = total = step = 0
    while total < edges:
        generator = np.random.default_rng(step)
        seeds = np.sort(generator.choice(graph.num_vertices, 4096, replace=False))
        sampled = native.sample_typed(
            seeds,
            [[fanout] * numbers for fanout in FANOUTS],
            replace=step % 2 == 1,
            seed=1,
            step=step,
            num_threads=threads,
            edge_positions=True,
            cutoffs=generator.integers(0, timed_graphs.NUM_TIMES, len(seeds)),
            **TimeRule(**rule).native,
        )
        found = violations(graph, sampled, rule)
        broken, total, step = broken + found[0], total + found[1], step + 1
    return broken, total


def run(options: argparse.Namespace) -> Any:
    rows, results = [], []
    for kind, make in {"without types": homogeneous, "with types": typed}.items():
        graph = make(options.vertices)
        for name, rule in RULES.items():
            for threads in (1, 2):
                broken, total = measured(graph, rule, threads, options.edges)
                rows.append([kind, name, str(threads), f"{total:,}", f"{broken:,}"])
                figures = {"graph": kind, "rule": name, "threads": threads}
                results.append(figures | {"edges": total, "violations": broken})
    show("Edges that break a rule of time", ["graph", "rule", "threads", "edges", "broken"], rows)
    missed = [f"{each['graph']}, {each['rule']}" for each in results if each["violations"]]
    return {"rules": results, "missed": missed}
