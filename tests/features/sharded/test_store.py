from typing import Any

import pytest
from free_ports import free_port


@pytest.mark.long
@pytest.mark.timeout(120)
def test_processes_exchange_rows_in_lockstep(together: Any) -> None:
    together("check_shared_rows", 3)


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_a_process_that_gets_no_rows_learns_why(together: Any) -> None:
    together("check_lost_rows", 2, free_port())
