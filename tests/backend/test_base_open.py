from collections.abc import Callable
from typing import Any

import copying_device
import pytest
from copying_device import Copying, CopyingBackend
from one_line import one_line

from gnnscale.backend import open_backend
from gnnscale.planner import registry
from gnnscale.planner.registry import DeviceKind

DEVICE = Copying(name="mine:0", macs_per_s=1e9, memory_bandwidth=1e9, memory_bytes=1 << 30)
NOTHING: Any = None
OpenedBy = Callable[[str], None]


@pytest.fixture
def opened_by(monkeypatch: pytest.MonkeyPatch) -> OpenedBy:
    """Give the device another opener."""

    def choose(opener: str) -> None:
        kind = DeviceKind(metadata=Copying, opener=opener)
        monkeypatch.setitem(registry._KINDS, Copying.kind, kind)

    return choose


def test_a_kind_of_ones_own_is_opened(backend: Any) -> None:
    opened = backend(DEVICE)
    assert isinstance(opened, CopyingBackend)
    assert opened.device is DEVICE
    opened.close()


def test_an_opener_that_cannot_be_imported(opened_by, monkeypatch, tmp_path) -> None:
    (tmp_path / "without_driver.py").write_text("import driver_of_no_board\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for opener, reason in (
        ("no_such_module:Backend", "No module named 'no_such_module'"),
        ("copying_device.parts:Backend", "'copying_device' is not a package"),
        ("copying_device:Backend", "has no attribute 'Backend'"),
        ("copying_device:CopyingBackend.of", "has no attribute 'of'"),
        ("without_driver:Backend", "No module named 'driver_of_no_board'"),
    ):
        opened_by(opener)
        with one_line(reason, begins=f"mine:0: {opener} cannot be imported ("):
            open_backend(DEVICE, NOTHING)


@pytest.mark.parametrize("failure", [ImportError, AttributeError])
def test_what_an_opener_itself_raises_passes(opened_by, monkeypatch, failure) -> None:
    def open_it(device: Any, host: Any) -> None:
        assert (device, host) == (DEVICE, NOTHING)
        raise failure("the board is off")

    monkeypatch.setattr(copying_device, "open_it", open_it, raising=False)
    opened_by("copying_device:open_it")
    with pytest.raises(failure, match="the board is off"):
        open_backend(DEVICE, NOTHING)
