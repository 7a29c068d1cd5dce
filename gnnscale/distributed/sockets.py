"""Connections between torchrun's processes: its store, checks, keepalive, shutdown, and loss."""

import ipaddress
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache

import torch
import torch.distributed as dist
from torch.distributed import Store, TCPStore, rendezvous

from gnnscale.core import ConfigError
from gnnscale.distributed.heartbeat import STATUS

#: TCP keepalive: seconds of silence before the first probe, seconds between probes, and number of
#: unanswered probes after which a connection is lost.
_IDLE_S, _INTERVAL_S, _PROBES = 20, 10, 4
#: Seconds after which sent but unacknowledged data makes a connection lost.
_ANSWER_S = _IDLE_S + _INTERVAL_S * _PROBES
#: Parts of gloo's messages to remove: the location in its source, and advice.
_GLOO_PLACE, _GLOO_ADVICE = re.compile(r"^\[[^\]]*:\d+\] *"), " This is typically caused"
#: Sockets for tensors between torchrun's processes, by their name in /proc.
_links: set[str] = set()


def check_address() -> None:
    """Raise ConfigError if gloo would publish an address that other machines cannot reach.

    Unless ``GLOO_SOCKET_IFNAME`` is set, gloo publishes the address of this machine's name. A
    loopback or missing address is refused, except if ``MASTER_ADDR`` is loopback.
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
    """Record the connections made in the ``with`` block, then enable TCP keepalive on all sockets.

    A failed machine or network closes no connections; keepalive ends them after a minute.
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
    """Shut down NCCL and the connections recorded by ``connecting``, so that waiting calls fail."""
    for name, descriptor in _sockets():
        if name in _links:
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                connection.getpeername()  # fails for listening sockets, which gloo still needs
                connection.shutdown(socket.SHUT_RDWR)
    _abort_on_devices()


def forget() -> None:
    """Clear the record of connections that ``connecting`` made, after they are closed."""
    _links.clear()


class PeerLostError(RuntimeError):
    """Error for the loss of another process of the group; that process reports the cause."""


def torchrun_keys(job: int) -> str:
    """Return the prefix of a run's keys in torchrun's store, which separates runs of a sweep.

    In the agent's store it also separates restarts. Any other store is new after each restart,
    and machines may count restarts differently.
    """
    is_agent_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if is_agent_store else "0"
    return f"start-{start}/job-{job}"


def check_agent_store() -> None:
    """Raise ConfigError if torchrun shares its agent's store, which a lost first machine breaks."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise ConfigError(
            "torchrun --max-restarts: export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on each machine "
            "before torchrun, which would keep the address of a first machine that is lost"
        )


def _abort_on_devices() -> None:
    """Abort NCCL: its kernels would wait for a lost peer without end."""
    if not dist.is_initialized() or "nccl" not in dist.get_backend_config():
        return
    with suppress(RuntimeError):  # already aborted, or not yet started
        # Neither the process group nor its abort is a public API.
        device = torch.device("cuda")
        dist.group.WORLD._get_backend(device).abort()  # type: ignore[union-attr]


@contextmanager
def waiting_for_peers() -> Iterator[None]:
    """Mark this thread as waiting, and turn a RuntimeError (a lost peer) into PeerLostError."""
    try:
        with STATUS.waits():
            yield
    except RuntimeError as error:
        raise peer_lost_error(error) from error


def record_failure(error: BaseException) -> None:
    """Record ``error`` as the reason for which this process ends the run, unless one is recorded.

    A PeerLostError is ignored, since its cause is in another process.
    """
    if isinstance(error, PeerLostError):
        return
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, OSError) and error.filename and error.strerror:
        reason = f"{error.filename}: {error.strerror}"
    STATUS.verdict = STATUS.verdict or reason


def peer_lost_error(error: RuntimeError) -> PeerLostError:
    """Return the PeerLostError for an error of a collective, with the recorded reason if any."""
    if isinstance(error, PeerLostError):
        return error
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    reason = _GLOO_PLACE.sub("", reason).partition(_GLOO_ADVICE)[0].rstrip(".")
    return PeerLostError(STATUS.verdict or f"lost the other processes ({reason})")


#: Timeout for all processes to join.
RENDEZVOUS = timedelta(minutes=5)


@cache
def torchrun_store() -> Store:
    """Return torchrun's key-value store, connected once for all runs of a sweep."""
    store: Store = next(rendezvous("env://", timeout=RENDEZVOUS))[0]
    return store


def torchrun_client() -> Store:
    """Return a second connection to torchrun's key-value store, for another thread."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with waiting_for_peers():
        return TCPStore(address, port, timeout=RENDEZVOUS, wait_for_workers=False)
