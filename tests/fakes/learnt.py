"""What a run leaves in its directory."""

import json
from pathlib import Path
from typing import Any

import torch

from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint.file import load_checkpoint


def weights(directory: Path, file: Path = LAST) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(directory / file)["model"])


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    """Whether the names are equal, and all bits."""
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
