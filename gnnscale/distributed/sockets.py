"""Connections between torchrun's processes: address checks, keepalive, and shutdown."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gnnscale.core import ConfigError

#: TCP keepalive: seconds of silence before the first probe, seconds between probes, and number of
#: unanswered probes after which a connection is lost.
_IDLE_S, _INTERVAL_S, _PROBES = 20, 10, 4
#: Seconds after which sent but unacknowledged data makes a connection lost.
_ANSWER_S = _IDLE_S + _INTERVAL_S * _PROBES
#: Sockets for tensors between torchrun's processes, by their name in /proc.
_links: set[str] = set()


def check_address() -> None:
    """Check that other machines can reach the address that gloo publishes.

    gloo publishes the address to which this machine's name resolves.

    Raises:
        ConfigError: that is a loopback address, or none, and ``MASTER_ADDR`` is not loopback.
    """
    if os.environ.get("GLOO_SOCKET_IFNAME") or _is_loopback(os.environ["MASTER_ADDR"]):
        return
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        address = ""
    if not address or _is_loopback(address):
        raise ConfigError(
            f"GLOO_SOCKET_IFNAME: is not set, and this machine's name, {name}, resolves to "
            f"{address or 'nothing'}, which other machines do not reach; set it to the network "
            "interface that they reach, such as eth0 (ip -br addr lists them)"
        )


def _is_loopback(host: str) -> bool:
    """Whether ``host`` is a loopback address or ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def connecting() -> Iterator[None]:
    """Record the connections made in the ``with`` block, and enable TCP keepalive on them.

    A machine or network that fails closes no connections. With keepalive the connections to it are
    lost after a minute without an answer.
    """
    existing = {name for name, _ in _sockets()}
    yield
    for name, descriptor in _sockets():
        if name not in existing:
            _links.add(name)
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            inet = connection.family in (socket.AF_INET, socket.AF_INET6)
            if inet and connection.type == socket.SOCK_STREAM:
                _enable_keepalive(connection)


def _sockets() -> Iterator[tuple[str, int]]:
    """Yield name and descriptor of each socket of this process."""
    for entry in os.scandir("/proc/self/fd"):
        with suppress(OSError):  # closed in the meantime
            name = os.readlink(entry.path)
            if name.startswith("socket:"):
                yield name, int(entry.name)


def _enable_keepalive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE_S),
        (socket.TCP_KEEPINTVL, _INTERVAL_S),
        (socket.TCP_KEEPCNT, _PROBES),
        (socket.TCP_USER_TIMEOUT, 1000 * _ANSWER_S),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def shut_down() -> None:
    """Shut down the recorded connections, so that processes waiting on them fail."""
    for name, descriptor in _sockets():
        if name in _links:
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                connection.getpeername()  # fails for listening sockets, which gloo still needs
                connection.shutdown(socket.SHUT_RDWR)


def forget() -> None:
    """Clear the record of connections after they are closed."""
    _links.clear()
