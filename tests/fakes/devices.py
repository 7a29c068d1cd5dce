"""Devices as options name them."""

#: A processor that takes rows as they are.
ROWS = "{kind:cpu,host_aggregates:false}"


def accelerator(kind: str = "emulated", **figures: object) -> str:
    """An accelerator of 1 GiB, with these figures beside or in place of the usual ones."""
    usual = {"macs_per_s": 1e10, "memory_bandwidth": 5e9, "memory_bytes": 1 << 30}
    options = {"kind": kind, **usual, "link_bandwidth": 1e9, **figures}
    return f"{{{','.join(f'{name}:{value}' for name, value in options.items())}}}"


def plan_of(*devices: str) -> str:
    return f"device_plan.devices=[{','.join(devices)}]"
