"""Which files a table is: one file, or the files of a folder in the order of their names."""

from __future__ import annotations

from pathlib import Path

from gnnscale.artifact.files import file_bytes
from gnnscale.errors import shown
from gnnscale.graph import GraphError

__all__ = ["ENDINGS", "is_parquet", "table_files", "usual_names"]

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
        found = [folder / name for name in usual_names(table) if (folder / name).exists()]
        if len(found) != 1:
            endings = ", ".join(ENDINGS)
            what = " and ".join(path.name for path in found) or f"no {table} with {endings}"
            which = "remove all but one, or name" if found else "name"
            raise GraphError(f"{folder}: has {what}: {which} the table by dataset.{table}=FILE")
        (path,) = found
    files = _in_folder(path) if path.is_dir() else [path]
    for file in files:
        if not file_bytes(file):
            raise GraphError(f"{file}: empty")
    return files


def usual_names(table: str) -> list[str]:
    """Return the names that a table may have where no option names it: a folder, or a file."""
    return [table, *(f"{table}{ending}" for ending in ENDINGS)]


def is_parquet(file: Path) -> bool:
    """Whether the file is Parquet; all others are CSV, whatever the end of their names."""
    return file.name.endswith(".parquet")


def _in_folder(path: Path) -> list[Path]:
    # What writers leave beside their files, such as _SUCCESS and .part-0.crc, is no table.
    files = sorted(file for file in path.iterdir() if file.name[0] not in "._")
    tables = [file for file in files if file.name.endswith(ENDINGS)]
    if not tables:
        raise GraphError(f"{path}: has no file that ends in {', '.join(ENDINGS)}")
    if len({is_parquet(file) for file in tables}) > 1:
        raise GraphError(f"{path}: has both Parquet and CSV files, one kind is allowed")
    return tables
