"""Predict the genres of movies from the users who rated them: tables with foreign keys.

Tables of users, movies and ratings, as MovieLens has them, are made here. A rating is a row with
two foreign keys, so that it is a vertex with its stars and its day as features.

python examples/movie_ratings.py
"""

import csv
import tempfile
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

import numpy as np

import gnnscale
from gnnscale.api import load_input_graph

GENRES = ("comedy", "drama", "horror", "musical")
OCCUPATIONS = ("artist", "doctor", "student", "writer")


def write_table(file: Path, *rows: Iterable[object]) -> None:
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)


def write_tables(folder: Path, num_users: int = 1000, num_movies: int = 400) -> None:
    """Write ``users.csv``, ``movies.csv`` and ``ratings.csv``; occupations prefer genres."""
    rng = np.random.default_rng(0)
    genres = rng.integers(len(GENRES), size=num_movies)
    tastes = rng.integers(len(GENRES), size=num_users)
    users = (
        (f"u{number}", rng.integers(16, 80), OCCUPATIONS[taste])
        for number, taste in enumerate(tastes)
    )
    movies = (
        # One genre in ten is unknown.
        (f"m{number}", 1950 + rng.integers(70), GENRES[genre] if rng.random() < 0.9 else "")
        for number, genre in enumerate(genres)
    )
    ratings = []
    for number, taste in enumerate(tastes):
        for movie in rng.choice(num_movies, 20, replace=False):
            stars = rng.integers(3, 6) if genres[movie] == taste else rng.integers(1, 5)
            day = date(2020, 1, 1) + timedelta(days=int(rng.integers(1000)))
            ratings.append((len(ratings), f"u{number}", f"m{movie}", stars, day))
    write_table(folder / "users.csv", ("user_id", "age", "occupation"), *users)
    write_table(folder / "movies.csv", ("movie_id", "year", "genre"), *movies)
    names = ("rating_id", "user_id", "movie_id", "stars", "day")
    write_table(folder / "ratings.csv", names, *ratings)


def main(num_epochs: int = 30) -> float:
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder))
        graph = load_input_graph(
            "typed_tables",
            raw=folder,
            store=f"{folder}/store",
            vertices={"user": "users.csv", "movie": "movies.csv", "rating": "ratings.csv"},
            foreign_keys={"rating.user_id": "user", "rating.movie_id": "movie"},
            target="movie",
            label="genre",
            split="random",
            standardize=True,
        )
        result = gnnscale.train(
            graph,
            "hgt",
            hidden=32,
            epochs=num_epochs,
            batch_size=32,
            fanouts=[20, 5],
            lr=0.01,
            directory=f"{folder}/run",
        )
        names = result.class_names or []
        print(f"genre of m7: {names[result.predict(['m7'])[0]]}")
        accuracy = result.test_metric
    assert accuracy is not None
    print(f"test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
