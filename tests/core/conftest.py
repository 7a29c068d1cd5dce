from typing import Any

import pytest
from nvidia_driver import driver_in


@pytest.fixture(scope="session")
def driver(tmp_path_factory: Any) -> dict[str, str]:
    return driver_in(tmp_path_factory.mktemp("driver"))
