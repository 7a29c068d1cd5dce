"""The sockets of a process of torchrun: on which address they are, and what the system asks."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gnnscale.core import ConfigError

#: Seconds after which a silent machine is probed, between two such
#: questions, and how many stay without an answer before its connections count as lost.
_ASK_AFTER_S, _ASK_EVERY_S, _QUESTIONS = 20, 10, 4
#: The same for a machine that something was sent to.
_ANSWER_S = _ASK_AFTER_S + _ASK_EVERY_S * _QUESTIONS
#: The sockets over which processes of torchrun exchange tensors, as the system names them.
_links: set[str] = set()


def check_address() -> None:
    """Refuse the loopback interface for several machines: gloo offers what its name resolves to.

    Raises:
        ConfigError: it does, and torchrun's own address is not of it.
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
    """Whether ``host`` is an address of the loopback interface; of a name, ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def connecting() -> Iterator[None]:
    """Take note of the connections that are made in the ``with`` block.

    The system then asks this process's peers whether they are there, while nothing is sent: a
    machine that vanishes, or its network, closes no connection. After a minute without an answer
    those to it are lost, as those to a process that died are.
    """
    before = {name for name, _ in _sockets()}
    yield
    for name, descriptor in _sockets():
        if name not in before:
            _links.add(name)
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            inet = connection.family in (socket.AF_INET, socket.AF_INET6)
            if inet and connection.type == socket.SOCK_STREAM:
                _watch(connection)


def _sockets() -> Iterator[tuple[str, int]]:
    """Yield this process's sockets: their names, and their descriptors."""
    for entry in os.scandir("/proc/self/fd"):
        with suppress(OSError):  # closed by now
            name = os.readlink(entry.path)
            if name.startswith("socket:"):
                yield name, int(entry.name)


def _watch(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _ASK_AFTER_S),
        (socket.TCP_KEEPINTVL, _ASK_EVERY_S),
        (socket.TCP_KEEPCNT, _QUESTIONS),
        (socket.TCP_USER_TIMEOUT, 1000 * _ANSWER_S),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def shut_down() -> None:
    """Close the connections between processes of torchrun: all that wait for them fail."""
    for name, descriptor in _sockets():
        if name in _links:
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                connection.getpeername()  # fails for one that listens, which gloo cannot do without
                connection.shutdown(socket.SHUT_RDWR)


def forget() -> None:
    """Forget the connections, which are closed."""
    _links.clear()
