"""The registry of devices: from a kind to its metadata, and to what opens its backend.

Nothing else asks which kind a device is. A custom kind takes two classes and a registration::

    register_device(MyAccelerator, "my_package.backend:MyBackend")
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gnnscale.core import ConfigError, check_choice, check_range, shown
from gnnscale.core.config.typed import typed
from gnnscale.planner.cuda_spec import Cuda
from gnnscale.planner.device_spec import MAX_DEVICES, Accelerator, Cpu, Device, Emulated, Fpga

_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")
_OPENER = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")


@dataclass(frozen=True, kw_only=True)
class DeviceKind:
    """A kind of device."""

    metadata: type[Device]  #: the class of its options
    #: ``module:name`` of what makes a backend of a device and the host's parts (see
    #: ``gnnscale.backend.base``). It is imported when the first such device is opened.
    opener: str


_BUILT_IN = {
    Cpu.kind: DeviceKind(metadata=Cpu, opener="gnnscale.backend.cpu:CpuBackend"),
    Emulated.kind: DeviceKind(
        metadata=Emulated, opener="gnnscale.backend.emulated:EmulatedBackend"
    ),
    Cuda.kind: DeviceKind(metadata=Cuda, opener="gnnscale.backend.cuda.backend:open_cuda"),
    Fpga.kind: DeviceKind(metadata=Fpga, opener="gnnscale.backend.fpga.backend:FpgaBackend"),
}
_KINDS = dict(_BUILT_IN)


def register_device(metadata: type[Accelerator], opener: str) -> None:
    """Make a kind of accelerator known, under ``metadata.kind``.

    Registering the same pair again changes nothing. Worker processes of a run know what the
    process that launches it has registered; both import the module of ``metadata`` and of
    ``opener``, which must be importable by name.

    Args:
        metadata: a dataclass of options, a subclass of ``Accelerator``.
        opener: ``module:name`` of a callable that takes a device and ``HostParts``.

    Raises:
        ConfigError: the class is no accelerator, the name is no kind, or another class or another
            opener has it.
    """
    kind = getattr(metadata, "kind", None)
    if not (isinstance(metadata, type) and issubclass(metadata, Accelerator)):
        raise ConfigError(f"{shown(metadata)}: no subclass of Accelerator, which a device must be")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise ConfigError(f"{metadata.__name__}.kind={shown(kind)}: lower-case letters, digits, _")
    if not _OPENER.fullmatch(opener):
        raise ConfigError(f"opener={shown(opener)}: must be module:name")
    found = DeviceKind(metadata=metadata, opener=opener)
    known = _KINDS.setdefault(kind, found)
    if known != found:
        raise ConfigError(
            f"{metadata.__name__}.kind={kind}: {known.metadata.__name__} has it already, "
            f"which {known.opener} opens"
        )


def register_kinds(kinds: Sequence[DeviceKind]) -> None:
    """Register what ``custom_kinds`` of another process returned."""
    for each in kinds:
        assert issubclass(each.metadata, Accelerator)
        register_device(each.metadata, each.opener)


def custom_kinds() -> tuple[DeviceKind, ...]:
    """Return the kinds that were registered in this process, without the built-in ones."""
    return tuple(found for kind, found in _KINDS.items() if kind not in _BUILT_IN)


def device_kind(kind: str) -> DeviceKind:
    """Return what is registered under ``kind``.

    Raises:
        ConfigError: nothing is.
    """
    check_choice("kind", kind, _KINDS)
    return _KINDS[kind]


def device_options(entries: Any) -> list[tuple[Mapping[str, Any], type[Device]]]:
    """Return the options in a list of devices, with the class of each; no device is checked."""
    found = entries if isinstance(entries, list) else []
    mappings = [each for each in found if isinstance(each, dict)]
    known = [each for each in mappings if str(each.get("kind")) in _KINDS]
    return [(each, _KINDS[str(each["kind"])].metadata) for each in known]


def parse_devices(entries: Sequence[Any], *, option: str) -> tuple[Device, ...]:
    """Build the devices that a list of options names.

    Args:
        entries: each a kind (``cpu``), or a mapping with ``kind`` and that kind's own options.

    Returns:
        The devices; those without a name are called by kind and position.

    Raises:
        ConfigError: no device, an unknown kind, or an option that its kind refuses.
    """
    if not entries:
        raise ConfigError(f"{option}=[]: at least one device is needed")
    check_range(f"number of {option}", len(entries), 1, MAX_DEVICES)
    return tuple(_parse(entry, f"{option}.{i}", i) for i, entry in enumerate(entries))


def _parse(entry: Any, option: str, position: int) -> Device:
    options = {"kind": entry} if isinstance(entry, str) else entry
    if not isinstance(options, dict) or "kind" not in options:
        raise ConfigError(f"{option}={shown(entry)}: a kind of device, or options with a kind")
    kind = str(options["kind"])
    check_choice(f"{option}.kind", kind, _KINDS)
    rest = {key: value for key, value in options.items() if key != "kind"}
    rest["name"] = rest.get("name") or f"{kind}:{position}"
    node = OmegaConf.create(rest)
    assert isinstance(node, DictConfig)
    try:
        return typed(node, _KINDS[kind].metadata, group=option)
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(option) else f"{option}.{text}") from None
