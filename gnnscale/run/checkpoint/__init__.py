"""Checkpoints: everything that a stopped run needs to resume."""

from pathlib import Path

from gnnscale.core.files import remove_unfinished

#: Everything after the last step that was kept, relative to the run directory.
LAST = Path("checkpoints") / "last.safetensors"
#: The weights with the best validation metric, relative to the run directory.
BEST = Path("checkpoints") / "best.safetensors"
#: What the model reads of a graph and says of it, beside the weights that it is about.
SIGNATURE = Path("checkpoints") / "signature.json"
#: All files of the folder.
FILES = (LAST, BEST, SIGNATURE)


def remove_parts(directory: Path) -> None:
    """Remove what a process that was killed has left of a file while it wrote it."""
    for file in FILES:
        remove_unfinished(directory / file)
