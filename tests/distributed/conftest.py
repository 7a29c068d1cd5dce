from collections.abc import Callable

import pytest


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def start(size: int, local_size: int, **variables: object) -> None:
        own = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": local_size}
        for name, value in (own | variables).items():
            monkeypatch.setenv(name, str(value))

    return start
