"""Modules that a part has several of: each is made and synthesized once."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth import ClockSignal, Instance, Module, ResetSignal, Signal, Value, ValueCastable
from amaranth.lib import wiring
from amaranth.lib.wiring import Out


def add_shared(
    m: Module,
    name: str,
    component: wiring.Component,
    inputs: Mapping[str, Value | ValueCastable],
    *,
    clocked: bool = True,
) -> dict[str, Signal]:
    """Add an instance of the module ``name``, which is ``component``; return its outputs.

    One without registers is not ``clocked``.
    """
    outputs = {
        port: Signal(Value.cast(getattr(component, port)).shape(), name=port)
        for port, member in component.signature.members.items()
        if member.flow is Out
    }
    ports = {f"i_{port}": value for port, value in inputs.items()}
    ports |= {f"o_{port}": value for port, value in outputs.items()}
    if clocked:
        ports |= {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
    m.submodules += Instance(name, **ports)
    return outputs
