"""Float32 operators as Verilog, by Google XLS, with the stages that the kernels ask for.

They round to nearest and flush subnormal numbers to zero.
"""

from __future__ import annotations

from amaranth import ClockSignal, Instance, Module, Signal
from xls.c_api import convert_dslx_to_ir, optimize_ir, parse_ir_package

from rtl.constants import ADD, MULTIPLY

#: Stages of each operator, a register at the end of each.
STAGES = {"add": ADD, "multiply": MULTIPLY}

_DSLX = """
import float32;
fn value(x: u32) -> float32::F32 { float32::unflatten(x) }
pub fn add(a: u32, b: u32) -> u32 { float32::flatten(float32::add(value(a), value(b))) }
pub fn multiply(a: u32, b: u32) -> u32 { float32::flatten(float32::mul(value(a), value(b))) }
"""


def verilog(name: str) -> str:
    """Return the module ``f32_<name>`` of an operator, a key of ``STAGES``."""
    top = f"__floats__{name}"
    package = parse_ir_package(optimize_ir(convert_dslx_to_ir(_DSLX, "floats.x", "floats"), top))
    package.set_top(top)
    pipeline = {"generator": "pipeline", "flop_inputs": False, "flop_outputs": True}
    result = package.schedule_and_codegen(
        **pipeline,
        with_delay_model=True,
        delay_model="unit",
        pipeline_stages=STAGES[name],
        module_name=f"f32_{name}",
        use_system_verilog=False,
    )
    return str(result.get_verilog_text())


def operate(module: Module, name: str, a: Signal, b: Signal) -> Signal:
    """Add an operator to ``module``; return its result, which comes its stages later."""
    out = Signal(32)
    module.submodules += Instance(f"f32_{name}", i_clk=ClockSignal(), i_a=a, i_b=b, o_out=out)
    return out
