"""Checkpoints of a run: files to resume from, best weights, and the model's input schema."""

from pathlib import Path

from gnnscale.core.files import remove_unfinished

#: Checkpoint to resume from, relative to the run directory.
LAST = Path("checkpoints") / "last.safetensors"
#: Weights of the best epoch by validation metric, relative to the run directory.
BEST = Path("checkpoints") / "best.safetensors"
#: Input schema of the model, relative to the run directory.
INPUT_SCHEMA = Path("checkpoints") / "signature.json"
#: All files of the checkpoint folder.
FILES = (LAST, BEST, INPUT_SCHEMA)


def remove_unfinished_files(directory: Path) -> None:
    """Remove checkpoint files of a run ``directory`` that a killed process left half-written."""
    for file in FILES:
        remove_unfinished(directory / file)
