"""A dataset whose graph a test has made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnscale.data import Dataset
from gnnscale.graph import Graph


@dataclass(frozen=True, kw_only=True)
class InMemory(Dataset):
    name: str = "own"
    graph: Graph

    def raw_files(self) -> list[Path]:
        return []

    def read(self, writer: Any) -> None:
        raise NotImplementedError

    def open(self) -> Graph:
        return self.graph
