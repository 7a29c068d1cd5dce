from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def shared_library(csim_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels are compiled for the host once, and not in each process of pytest-xdist."""
    monkeypatch.setenv("GNNSCALE_HOME", str(csim_home))
