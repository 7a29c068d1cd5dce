"""Files of a table in the folder of raw files, and their marks."""

from pathlib import Path, PurePath

from gnnscale.core import ConfigError, GraphError, brief, check_choice
from gnnscale.core.artifact.files import file_bytes

_ENDINGS = (".parquet", ".csv", ".csv.gz")


def check_file_name(option: str, name: str) -> None:
    """Raise ConfigError unless ``name``, the value of an option, is a path in the raw folder."""
    path = PurePath(name)
    if name == "" or path.is_absolute() or ".." in path.parts:
        raise ConfigError(
            f"dataset.{option}={brief(name)}: expected a file or folder in dataset.raw"
        )


def check_marks(delimiter: str, decimal: str) -> None:
    """Raise ConfigError for a delimiter or a mark of decimals that CSV cannot have."""
    check_choice("dataset.decimal", decimal, (".", ","))
    if decimal == delimiter:
        raise ConfigError(
            "dataset.decimal=',': expected another mark than dataset.delimiter; tables with "
            "decimal commas have dataset.delimiter=';' mostly"
        )
    if delimiter != "tab" and (len(delimiter.encode()) != 1 or delimiter in '"\r\n'):
        raise ConfigError(
            f"dataset.delimiter={brief(repr(delimiter))}: expected tab, or one ASCII "
            "character other than a quote or a line end"
        )


def usual_names(table: str) -> list[str]:
    """Return the default names of the folder or file of a table, ``vertices`` or ``edges``."""
    return [table, *(f"{table}{ending}" for ending in _ENDINGS)]


def table_files(folder: Path, option: str, name: str | None) -> list[Path]:
    """Return the files of a table at ``name``, the value of an option.

    If ``name`` is None, they have a default name of the option. GraphError: no file, an empty file,
    several default names, or both Parquet and CSV.
    """
    path = folder / (name or "")
    if name is None:
        paths = [folder / name for name in usual_names(option) if (folder / name).exists()]
        if len(paths) != 1:
            what = " and ".join(path.name for path in paths)
            what = what or f"no {option} with {', '.join(_ENDINGS)}"
            which = "remove all but one, or name" if paths else "name"
            raise GraphError(f"{folder}: has {what}: {which} the table by dataset.{option}=FILE")
        (path,) = paths
    elif not path.exists():
        raise GraphError(f"dataset.{option}={brief(name)}: {path} is missing")
    files = _in_folder(path) if path.is_dir() else [path]
    for file in files:
        if not file_bytes(file):
            raise GraphError(f"{file}: empty")
    return files


def _in_folder(path: Path) -> list[Path]:
    # What writers leave beside their files, such as _SUCCESS and .part-0.crc, is no table.
    files = sorted(file for file in path.iterdir() if file.name[0] not in "._")
    tables = [file for file in files if file.name.endswith(_ENDINGS)]
    if not tables:
        raise GraphError(f"{path}: has no file that ends in {', '.join(_ENDINGS)}")
    if len({file.name.endswith(".parquet") for file in tables}) > 1:
        raise GraphError(f"{path}: has both Parquet and CSV files, one kind is allowed")
    return tables
