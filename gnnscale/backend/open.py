"""Opens the backend of a device: the one that the registry names for its kind."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter

from gnnscale.backend.base import Backend, HostParts
from gnnscale.core.errors import ConfigError
from gnnscale.plan import Device
from gnnscale.plan.registry import device_kind


def open_backend(device: Device, host: HostParts) -> Backend:
    """Open a device for training.

    Raises:
        ConfigError: its opener cannot be imported.
        DeviceMemoryError: the model alone does not fit.
    """
    opener = device_kind(device.kind).opener
    module, _, name = opener.partition(":")
    try:
        open_it = attrgetter(name)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{device.label}: {opener} cannot be imported ({error})") from error
    opened: Backend = open_it(device, host)
    return opened
