from types import SimpleNamespace
from typing import Any

import pytest
import torch
from free_ports import free_port

from gnnscale.core.errors import ConfigError
from gnnscale.distributed import process_group as group
from gnnscale.distributed.process_group import SINGLE_PROCESS, Group, join, join_torchrun
from gnnscale.distributed.sockets import torchrun_keys


def test_one_process_is_a_group() -> None:
    values = torch.tensor([1.0, 2.0])
    SINGLE_PROCESS.sum(values)
    assert values.tolist() == [1, 2]
    assert SINGLE_PROCESS.broadcast(b"") == b""
    assert SINGLE_PROCESS.gather(b"abc") == [b"abc"]
    assert SINGLE_PROCESS.broadcast_object({"a": None}) == {"a": None}
    SINGLE_PROCESS.barrier()
    with join(0, 1, None, backend="gloo") as joined:
        assert joined == SINGLE_PROCESS
    # Several machines share no memory.
    several = Group(rank=0, size=4, local_rank=0, local_size=2)
    assert group._with_sums(several) is several
    assert several.sums is None


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_several_processes_exchange_and_synchronise(together: Any) -> None:
    together("check_group", 3)


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("program", "size", "at_a_port"),
    [("check_gone", 3, False), ("check_left", 2, True), ("check_torchrun", 2, True)],
)
def test_processes_that_go_and_that_torchrun_starts(
    together: Any, program: str, size: int, at_a_port: bool
) -> None:
    together(program, size, *([free_port()] if at_a_port else []))


@pytest.mark.parametrize(("backend", "aborted"), [("cpu:gloo,cuda:nccl", 1), ("cpu:gloo", 0)])
def test_sums_of_gpus_are_aborted_when_a_peer_is_lost(monkeypatch, backend, aborted) -> None:
    calls: list[str] = []

    class Nccl:
        def abort(self) -> None:
            calls.append("abort")
            raise RuntimeError("aborted before")

    world = SimpleNamespace(_get_backend=lambda device: Nccl() if device.type == "cuda" else None)
    monkeypatch.setattr(group.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(group.dist, "get_backend_config", lambda: backend)
    monkeypatch.setattr(group.dist, "group", SimpleNamespace(WORLD=world))
    group.hang_up()
    assert len(calls) == aborted


def test_what_torchrun_started(torchrun: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1, "TORCHELASTIC_RUN_ID": "mine"}
    elastic = {"TORCHELASTIC_MAX_RESTARTS": 1, "TORCHELASTIC_USE_AGENT_STORE": True}
    for given, message in (
        ((3, 3, {}), "torchrun started 3 processes, but device_plan has 2 devices"),
        (
            (2, 1, variables | elastic),
            "torchrun --max-restarts: export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        ),
    ):
        torchrun(*given[:2], **given[2])
        with pytest.raises(ConfigError, match=message), join_torchrun(2, backend="gloo"):
            pass
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert torchrun_keys(3) == "start-0/job-3"  # machines may count differently
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert torchrun_keys(3) == "start-2/job-3"
