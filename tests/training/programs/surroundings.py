"""What programs of this folder find before they join the others."""

import logging
import os


def set_by_torchrun(rank: int, size: int, port: str, *, alone: bool = False) -> None:
    """Set what torchrun tells a process; ``alone``: each is on a machine of its own."""
    place = {"RANK": rank, "LOCAL_RANK": 0 if alone else rank}
    place |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": 1 if alone else size}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")


def logged() -> list[str]:
    """Return the lines that are logged from now on, as they come."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gnnscale").addHandler(handler)
    return lines
