"""Several commands in one Python process, which imports torch once."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_PROGRAM = """
import json, sys
from gnnscale.cli import main
for command in json.loads(sys.argv[1]):
    sys.argv[1:] = command
    assert main() == 0, command
"""


def run_commands(
    commands: Sequence[Sequence[str]], *, then: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run commands of gnnscale one after the other, and then a program; all have to succeed."""
    command = [sys.executable, "-c", _PROGRAM + then, json.dumps(commands)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert ran.returncode == 0, ran.stderr
    return ran
