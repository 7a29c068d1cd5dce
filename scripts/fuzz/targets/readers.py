"""Published layouts: files are damaged, prepared, and trained one step on if they were let in."""

import os
import random
from pathlib import Path
from typing import Any

from gnnscale import dataset
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.dataset import verify_store

from .. import case
from ..case import Input, Keep, Outcome, WrongResultError, case_rng
from ..formats import damaged
from .folders import MODELS, check_graph, train_step
from .samples import SAMPLES, Sample, real_samples

#: One case in so many damages a real file, which takes longer.
_REAL = 100


class Readers:
    """``prepare``, ``open`` and a step of training on damaged files, of one layout or all."""

    batch, limit_s, uses_files = 64, 20.0, True

    def __init__(self, only: str | None = None) -> None:
        self.kinds = [name for name in SAMPLES if only in (None, name, name.lower())]
        if not self.kinds:
            raise ValueError(f"{only}: readers are {', '.join(SAMPLES)}")
        self.name = "readers" if only is None else f"readers-{self.kinds[0].lower()}"
        self._real: dict[str, Sample] = {}

    def prepare(self) -> None:
        self._real = real_samples()

    def make(self, key: str, number: int, keep: Keep = None) -> Input:
        rng = case_rng(key, number)
        layout = self.kinds[number % len(self.kinds)]
        sample = rng.choice(SAMPLES[layout])
        if rng.randrange(_REAL) == 0:
            sample = self._real.get(layout, sample)
        options = dict(sample.options) | reader_options(rng)
        files, edits = damaged(sample.files, key, number, rng.choice((0, 1, 1, 1, 1, 2, 3)), keep)
        odd = case.odd_places(files, case_rng(key, number, "odd"))
        return Input(kind=layout, options=options, files=files, edits=tuple(edits), odd=odd)

    def run(self, made: Input, folder: Path) -> Outcome:
        raw = folder / "raw"
        raw.mkdir()
        made.write(raw)
        os.environ["GNNSCALE_HOME"] = str(folder / "home")
        layout = getattr(dataset, made.kind)
        model = list(MODELS)[len(made.edits) % len(MODELS)]
        prepared: list[Path] = []

        def body() -> None:
            reader = layout(raw=str(raw), **made.options)
            prepared.append(reader.prepare())
            graph = reader.open()
            for check in verify_store(prepared[0]):
                if check.problem is not None:
                    raise WrongResultError(f"the store has {check.what} wrong")
            check_graph(graph)
            train_step(graph, model)

        names = [str(folder), "dataset.", f"features of {made.options['name']}"]
        outcome = case.guarded(body, (GraphError, ConfigError), names)
        if outcome.is_finding:
            return outcome
        stores = {f"home/graphs/{store.name}" for store in prepared}
        empty = set() if prepared else {"home", "home/graphs"}
        return case.strange_files(folder, {"raw", case.ASIDE, *stores, *empty}) or outcome


def reader_options(rng: random.Random) -> dict[str, Any]:
    choices: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(("undirected", "drop_duplicates", "normalize_features"), (True, False)),
        **{"self_loops": ("keep", "remove", "add"), "memory_bytes": (64, 1 << 20)},
        "feature_dtype": ("float32", "float16", "bfloat16", "uint8"),
    }
    names = rng.sample(sorted(choices), rng.choice((0, 0, 0, 1, 2)))
    picked = {name: rng.choice(choices[name]) for name in names}
    if picked.get("feature_dtype") == "uint8":
        picked.pop("normalize_features", None)
    return picked
