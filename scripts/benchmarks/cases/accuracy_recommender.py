"""Recall of recommended films on MovieLens, beside that of the most popular films.

``config=recommender`` ranks all films for each user without the films of the user's training and
validation edges. Ratings are divided at random, 85 % for training, 5 % for validation and 10 % for
the test; options were chosen by validation. Exit status 1: a seed's test recall@20 is not above
that of popularity.
"""

import argparse
import csv
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.runner import data_folder, show, take, train

#: Options that the tables need, and those of the command in docs/links.md.
OPTIONS = (
    *("config=recommender", "dataset=tables", "dataset.label=null", "dataset.undirected=true"),
    *("task.candidate_column=kind", "task.candidate_kind=movie"),
)
METRIC = "recall@20"


def write_tables(source: Path, folder: Path) -> None:
    """Write the users and films of ``source`` as one table of vertices, and ratings as edges."""
    with (source / "ratings.csv").open(encoding="utf-8", newline="") as file:
        ratings = [(f"u{row['userId']}", f"m{row['movieId']}") for row in csv.DictReader(file)]
    with (source / "movies.csv").open(encoding="utf-8", newline="") as file:
        films = [f"m{row['movieId']}" for row in csv.DictReader(file)]
    users = dict.fromkeys(user for user, _ in ratings)
    kinds = [*((user, "user") for user in users), *((film, "movie") for film in films)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, header, rows in (
        ("vertices", ("id", "kind"), kinds),
        ("edges", ("source", "target"), ratings),
    ):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *rows])


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", type=Path, help="folder in which the tables stay")
    parser.add_argument("overrides", nargs="*", help="options, as in epochs=10")
    take(parser, seeds=3, data=data_folder())


def run(options: argparse.Namespace) -> Any:
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary)).absolute()
        write_tables(options.data.absolute() / "relational" / "movielens", folder)
        common = (*OPTIONS, f"dataset.raw={folder}", "runtime.checkpoint=false")
        summaries = [
            train(*common, f"seed={seed}", f"task.split_seed={seed}", *options.overrides).summary
            for seed in range(options.seeds)
        ]
    figures = {
        system: [summary[name][METRIC] for summary in summaries]
        for system, name in (("gnnscale", "test_metrics"), ("popularity", "test_popularity"))
    }
    rows = [
        [system, *(f"{value:.4f}" for value in values), f"{statistics.mean(values):.4f}"]
        for system, values in figures.items()
    ]
    seeds = [f"seed {seed}" for seed in range(options.seeds)]
    show(f"MovieLens, test {METRIC} over all films", ["by", *seeds, "mean"], rows)
    pairs = zip(figures["gnnscale"], figures["popularity"], strict=True)
    missed = [f"seed {seed}" for seed, (ours, popular) in enumerate(pairs) if ours <= popular]
    return figures | {"valid": [each["valid_metric"] for each in summaries], "missed": missed}
