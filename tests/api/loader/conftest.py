from typing import Any

import pytest


@pytest.fixture
def dgl() -> Any:
    return pytest.importorskip("dgl", reason="DGL is not installed")
