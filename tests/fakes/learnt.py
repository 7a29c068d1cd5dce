"""What a run leaves in its directory."""

import json
from pathlib import Path
from typing import Any

import torch

from gnnscale.run.checkpoint import BEST, LAST
from gnnscale.run.checkpoint.file import load_checkpoint


def weights(directory: Path, file: Path = LAST) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(directory / file)["model"])


def states(directory: Path) -> list[dict[str, torch.Tensor]]:
    """The weights, last and best, with statistics, and what the optimizer keeps."""
    last, best = (load_checkpoint(directory / file) for file in (LAST, BEST))
    return [last["model"], best["model"], *last["optimizer"].values()]


def all_same(left: Path, right: Path) -> bool:
    """Whether two runs have learnt the same bits, as ``states`` has them."""
    return all(same(*pair) for pair in zip(states(left), states(right), strict=True))


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    """Whether the names are equal, and all bits."""
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
