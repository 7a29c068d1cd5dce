"""Checkpoints: everything that a stopped run needs to resume."""

from pathlib import Path

#: Everything after the last step that was kept, relative to the run directory.
LAST = Path("checkpoints") / "last.safetensors"
#: The weights with the best validation metric, relative to the run directory.
BEST = Path("checkpoints") / "best.safetensors"
