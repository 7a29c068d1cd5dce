"""Processes of torchrun that lose another one name it."""

import socket
from collections.abc import Callable

import pytest


def free_port() -> int:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        return int(other.getsockname()[1])


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("lost", ["0", "2"])  # the first one keeps the store
def test_a_process_that_is_gone_is_named(together: Callable[..., None], lost: str) -> None:
    together("check_roll_call", 3, free_port(), lost, "gone")


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("lost", ["0", "1"])
def test_the_error_of_a_process_is_passed_on(together: Callable[..., None], lost: str) -> None:
    together("check_roll_call", 3, free_port(), lost, "error")
