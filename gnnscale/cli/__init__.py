"""The command line: one Hydra application per command."""

from gnnscale.cli.command import COMMANDS, main

__all__ = ["COMMANDS", "main"]
