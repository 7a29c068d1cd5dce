import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.distributed import sockets as connections
from gnnscale.distributed.process_group import join_torchrun


@pytest.mark.parametrize(
    ("address", "resolved", "interface", "refused"),
    [
        ("10.0.0.1", "127.0.1.1", None, True),
        ("10.0.0.1", None, None, True),  # a name that nothing knows
        ("first", "127.0.0.1", "", True),
        ("10.0.0.1", "10.0.0.2", None, False),
        ("10.0.0.1", "127.0.0.1", "eth0", False),
        ("127.0.0.1", "127.0.0.1", None, False),  # all on one machine
        ("::1", "127.0.0.1", None, False),
        ("localhost", "127.0.0.1", None, False),
    ],
)
def test_several_machines_need_an_address_that_others_reach(
    address, resolved, interface, refused, monkeypatch, torchrun
) -> None:
    def resolve(name: str) -> str:
        if resolved is None:
            raise OSError
        return resolved

    torchrun(2, 1, MASTER_ADDR=address)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    if interface is not None:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    monkeypatch.setattr(connections.socket, "gethostbyname", resolve)

    def reached() -> None:
        raise RuntimeError("on")

    monkeypatch.setattr(connections, "torchrun_store", reached)
    error = ConfigError if refused else connections.PeerLostError
    words = "^GLOO_SOCKET_IFNAME: is not set, and this machine's name" if refused else r"\(on\)$"
    with pytest.raises(error, match=words), join_torchrun(2, backend="gloo"):
        pass
