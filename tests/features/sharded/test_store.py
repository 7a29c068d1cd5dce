import socket
from typing import Any

import pytest


@pytest.mark.timeout(120)
def test_processes_exchange_rows_in_lockstep(together: Any) -> None:
    together("check_shared_rows", 3)


@pytest.mark.timeout(120)
def test_a_process_that_gets_no_rows_learns_why(together: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    together("check_lost_rows", 2, port)
