"""What a tool makes of an operator, and how it ends pipelines and lays out memories."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.plan.resources.quantities import Resources


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Operators of float32, but for the last two."""

    name: str
    add: Resources
    multiply: Resources
    compare: Resources
    divide: Resources
    exponential: Resources
    logarithm: Resources
    multiply_64: Resources  #: the lower half of a product of integers of 64 bits
    divide_integers: Resources  #: of 32 bits, a bit a cycle, outside of loops
    #: Whether results that a stream does not take wait in a memory after the pipeline, not in its
    #: stages.
    holds_in_memory: bool = False
    #: Whether the last bits of a deep memory share blocks of URAM.
    folds_memories: bool = False


#: What the reports of Vitis HLS print for UltraScale+ at 300 MHz, in the forms that the kernels ask
#: for (``bind_op``); the Floating-Point Operator guide (PG060) has the same DSP slices. Neither it
#: nor Vivado ever ran here.
VITIS_HLS = Tool(
    name="Vitis HLS",
    add=Resources(luts=198, registers=318, dsps=2),
    multiply=Resources(luts=78, registers=143, dsps=3),
    compare=Resources(luts=66, registers=66),
    divide=Resources(luts=802, registers=761),
    exponential=Resources(luts=905, registers=324, dsps=7),
    logarithm=Resources(luts=754, registers=411, dsps=13),
    multiply_64=Resources(luts=64, registers=160, dsps=10),
    divide_integers=Resources(luts=238, registers=394),
)
