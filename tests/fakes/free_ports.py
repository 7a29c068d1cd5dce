"""Ports for processes that meet."""

import socket


def free_port() -> int:
    """A port of this machine that nobody listened to a moment ago."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        return other.getsockname()[1]
