"""Which files a table is: one file, or the files of a folder in the order of their names."""

from __future__ import annotations

from pathlib import Path

from gnnscale.dataset.formats.plain import file_bytes
from gnnscale.errors import shown
from gnnscale.graph import GraphError

__all__ = ["ENDINGS", "is_parquet", "table_files"]

ENDINGS = (".parquet", ".csv", ".csv.gz")


def table_files(folder: Path, table: str, name: str | None) -> list[Path]:
    """Return the files of a table, all of one kind.

    Args:
        folder: that they are in.
        table: ``vertices`` or ``edges``: the name that they have, and the option for another one.
        name: what that option says.

    Raises:
        GraphError: there is none, or more than one candidate; names what was looked for.
    """
    if name is not None:
        path = folder / name
        if not path.exists():
            raise GraphError(f"dataset.{table}={shown(name)}: {path} is missing")
    else:
        candidates = [folder / table, *(folder / f"{table}{ending}" for ending in ENDINGS)]
        found = [path for path in candidates if path.exists()]
        if len(found) != 1:
            what = " and ".join(path.name for path in found) or f"no {table}, {_named(table)}"
            which = "both: remove one, or name" if found else "name"
            raise GraphError(f"{folder}: has {what}; {which} the table by dataset.{table}=FILE")
        (path,) = found
    files = _in_folder(path) if path.is_dir() else [path]
    for file in files:
        if not file_bytes(file):
            raise GraphError(f"{file}: empty")
    return files


def is_parquet(file: Path) -> bool:
    """Whether the file is Parquet; all others are CSV, whatever the end of their names."""
    return file.name.endswith(".parquet")


def _named(table: str) -> str:
    return " or ".join(f"{table}{ending}" for ending in ENDINGS)


def _in_folder(path: Path) -> list[Path]:
    # What writers leave beside their files, such as _SUCCESS and .part-0.crc, is no table.
    files = sorted(file for file in path.iterdir() if file.name[0] not in "._")
    tables = [file for file in files if file.name.endswith(ENDINGS)]
    if not tables:
        raise GraphError(f"{path}: has no file that ends in {', '.join(ENDINGS)}")
    if len({is_parquet(file) for file in tables}) > 1:
        raise GraphError(f"{path}: has both Parquet and CSV files, one kind is allowed")
    return tables
