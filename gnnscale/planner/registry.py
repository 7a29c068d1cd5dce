"""Registry of device kinds: the options and the backend of each kind.

The rest of the package does not ask for a device's kind. A custom kind needs two classes and a
call::

    register_device(MyAccelerator, "my_package.backend:MyBackend")
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gnnscale.core import ConfigError, brief, check_choice, check_range
from gnnscale.core.config.typed import typed
from gnnscale.planner.cuda_spec import Cuda
from gnnscale.planner.device_spec import MAX_DEVICES, Accelerator, Cpu, Device, Emulated, Fpga

_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")
_OPENER = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")


@dataclass(frozen=True, kw_only=True)
class DeviceKind:
    """Registry entry of a kind of device: options class, and name of the callable that opens it."""

    metadata: type[Device]  #: the class of its options
    #: ``module:name`` of a callable that builds the backend from a device and ``BackendInputs``
    #: (``gnnscale.backend.base``). It is imported when the first device of the kind is opened.
    opener: str


_BUILT_IN = {
    Cpu.kind: DeviceKind(metadata=Cpu, opener="gnnscale.backend.host:CpuBackend"),
    Emulated.kind: DeviceKind(metadata=Emulated, opener="gnnscale.backend.host:EmulatedBackend"),
    Cuda.kind: DeviceKind(metadata=Cuda, opener="gnnscale.backend.cuda.backend:open_cuda"),
    Fpga.kind: DeviceKind(metadata=Fpga, opener="gnnscale.backend.fpga.backend:FpgaBackend"),
}
_KINDS = dict(_BUILT_IN)


def register_device(metadata: type[Accelerator], opener: str) -> None:
    """Register a kind of accelerator under ``metadata.kind``.

    Repeating a registration is allowed. Worker processes get the registrations of the process that
    launches them. They import ``metadata`` and ``opener`` by name.

    Args:
        metadata: dataclass of the kind's options, a subclass of ``Accelerator``.
        opener: ``module:name`` of a callable from a device and ``BackendInputs`` to its backend.

    Raises:
        ConfigError: the class is no accelerator, ``kind`` or ``opener`` has a wrong form, or the
            kind is registered with another class or opener.
    """
    kind = getattr(metadata, "kind", None)
    if not (isinstance(metadata, type) and issubclass(metadata, Accelerator)):
        raise ConfigError(f"metadata={brief(metadata)}: expected a subclass of Accelerator")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise ConfigError(
            f"{metadata.__name__}.kind={brief(kind)}: expected lower-case letters, digits and _"
        )
    if not _OPENER.fullmatch(opener):
        raise ConfigError(f"opener={brief(opener)}: expected module:name")
    entry = DeviceKind(metadata=metadata, opener=opener)
    registered = _KINDS.setdefault(kind, entry)
    if registered != entry:
        raise ConfigError(
            f"{metadata.__name__}.kind={kind}: expected an unused kind, got that of "
            f"{registered.metadata.__name__}, opened by {registered.opener}"
        )


def register_kinds(kinds: Sequence[DeviceKind]) -> None:
    """Register ``kinds``, the ``custom_kinds`` of another process, in this process."""
    for kind in kinds:
        assert issubclass(kind.metadata, Accelerator)
        register_device(kind.metadata, kind.opener)


def custom_kinds() -> tuple[DeviceKind, ...]:
    """Return the registered kinds that are not built in."""
    return tuple(entry for kind, entry in _KINDS.items() if kind not in _BUILT_IN)


def device_kind(kind: str) -> DeviceKind:
    """Return the entry registered under ``kind``; ConfigError: there is none."""
    check_choice("kind", kind, _KINDS)
    return _KINDS[kind]


def device_options(entries: Any) -> list[tuple[Mapping[str, Any], type[Device]]]:
    """Return a pair for each dict in the list ``entries`` that has a known ``kind``.

    The pair is the dict itself and the kind's options class; other entries are skipped.
    """
    devices = entries if isinstance(entries, list) else []
    mappings = [options for options in devices if isinstance(options, dict)]
    kinds = [_KINDS.get(str(options.get("kind"))) for options in mappings]
    pairs = zip(mappings, kinds, strict=True)
    return [(options, kind.metadata) for options, kind in pairs if kind is not None]


def parse_devices(entries: Sequence[Any], *, option: str) -> tuple[Device, ...]:
    """Build a device for each entry: a kind, such as ``cpu``, or a dict of ``kind`` and options.

    A device without a name is called by its kind and its index in the list, such as ``cuda:1``.
    Raises ConfigError, which names ``option``, if the list is empty or too long, or a kind or an
    option is invalid.
    """
    if not entries:
        raise ConfigError(f"{option}=[]: expected at least one device")
    check_range(f"number of {option}", len(entries), 1, MAX_DEVICES)
    return tuple(_parse(entry, f"{option}.{i}", i) for i, entry in enumerate(entries))


def _parse(entry: Any, option: str, position: int) -> Device:
    options = {"kind": entry} if isinstance(entry, str) else entry
    if not isinstance(options, dict) or "kind" not in options:
        raise ConfigError(f"{option}={brief(entry)}: expected a kind, or options with a kind")
    kind = str(options["kind"])
    check_choice(f"{option}.kind", kind, _KINDS)
    values = {key: value for key, value in options.items() if key != "kind"}
    values["name"] = values.get("name") or f"{kind}:{position}"
    node = OmegaConf.create(values)
    assert isinstance(node, DictConfig)
    try:
        return typed(node, _KINDS[kind].metadata, group=option)
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(option) else f"{option}.{text}") from None
