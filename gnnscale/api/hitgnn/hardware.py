"""Hardware of the design phase: FPGAs, platforms, and generated designs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, overload

import torch
from omegaconf import OmegaConf

from gnnscale.api.hitgnn.design import OptionGroup, check_option_group, choose, device_metadata
from gnnscale.backend.fpga.csim import build
from gnnscale.core import ConfigError, brief, standard_arithmetic, write_atomically
from gnnscale.core.config.compose import compose, separate_hydra
from gnnscale.core.config.run_directory import check_output, create_output_folder
from gnnscale.data import GraphSource
from gnnscale.fpga_design import DesignPackage, GenerateConfig, GeneratedDesign, generate, package
from gnnscale.nn import ModelConfig
from gnnscale.planner import Board, DevicePlanConfig, Die, Resources, board
from gnnscale.report import fpga_design
from gnnscale.report.summary import write_json
from gnnscale.sampling import SamplerConfig

_GB, _MHZ = 1e9, 1_000_000
#: Registers per LUT of this FPGA family, and BRAM blocks of a U250's die.
_REGISTERS_OF_LUT, _BRAM = 2, 672
_ARGUMENT = "argument of fpga_metadata"
#: Values of a design that its simulation depends on.
_SIMULATED = ("n", "m", "row_words", "compute_units", "clock_hz")


@dataclass(frozen=True, kw_only=True)
class FpgaPlatform:
    """Equal FPGA cards on one host: result of ``platform_metadata`` with ``FPGA``."""

    boards: tuple[Board, ...]
    host_bandwidth: float  #: bytes per second of host memory

    @property
    def link_share(self) -> float:
        """Fraction of each card's link bandwidth that host memory sustains on all links at once."""
        return min(1.0, self.host_bandwidth / (len(self.boards) * self.boards[0].link_bandwidth))


class Bitstream(NamedTuple):
    """Program of an FPGA card: a design, and the file that runs it."""

    design: GeneratedDesign
    file: Path | None  #: an .xclbin file. None: C simulation
    header: Path | None  #: C++ header of the user's layers. None: built-in layers


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Model, device plan and options with which ``start_training`` trains on a generated design."""

    model: OptionGroup[ModelConfig]
    platform: OptionGroup[DevicePlanConfig]
    options: Mapping[str, Any]  #: further options of the design, by name
    generated: DesignPackage
    directory: Path | None  #: directory of the design. None: not written


def fpga_metadata(
    name: str | None = None,
    *,
    SLR: int | None = None,
    DSP: int | None = None,
    LUT: int | None = None,
    URAM: int | None = None,
    BRAM: int | None = None,
    BW: float | None = None,
    MHz: int | None = None,
) -> Board:
    """Describe an FPGA card (``FPGA_Metadata``).

    Args:
        name: name of a shipped board, such as ``u250``, without further arguments.
        SLR: number of dies, 1 to 16. The dies are equal, with a memory each.
        DSP: DSP slices of each die that a design may use.
        LUT: look-up tables of each die that a design may use.
        URAM: URAM blocks of each die.
        BRAM: BRAM blocks of each die. None: those of a die of the U250.
        BW: GB per second of each die's memory.
        MHz: clock of the kernels. None: 300.

    Raises:
        ConfigError: an argument is missing or out of range.
    """
    required = {"SLR": SLR, "DSP": DSP, "LUT": LUT, "URAM": URAM, "BW": BW}
    if name is not None:
        for argument, value in (required | {"BRAM": BRAM, "MHz": MHz}).items():
            if value is not None:
                raise ConfigError(
                    f"fpga_metadata={brief(name)}: expected no {argument}, which the board defines"
                )
        return board(name)
    for argument, value in required.items():
        if value is None:
            raise ConfigError(f"fpga_metadata: {argument}: required")
    assert SLR is not None
    if not 1 <= SLR <= 16:
        raise ConfigError(f"fpga_metadata: SLR={SLR}: expected 1 to 16")
    resources = Resources(
        luts=float(LUT or 0),
        registers=float(_REGISTERS_OF_LUT * (LUT or 0)),
        dsps=float(DSP or 0),
        brams=float(_BRAM if BRAM is None else BRAM),
        urams=float(URAM or 0),
    )
    u250, speed = board("u250"), float(BW or 0) * _GB
    return replace(
        u250,
        name="FPGA",
        dies=[
            Die(name=f"SLR{i}", has=resources, shell=Resources(), bank=f"DDR[{i}]", bandwidth=speed)
            for i in range(SLR)
        ],
        clock_hz=(300 if MHz is None else MHz) * _MHZ,
        sources=dict.fromkeys(u250.sources, _ARGUMENT) | {"power_w": "that of the U250"},
    )


@overload
def platform_metadata(
    devices: str | Sequence[str | Mapping[str, Any]], **options: Any
) -> OptionGroup[DevicePlanConfig]: ...


@overload
def platform_metadata(*, BW: float, FPGA: Sequence[Board], FPGA_connect: float) -> FpgaPlatform: ...


def platform_metadata(
    devices: str | Sequence[str | Mapping[str, Any]] | None = None,
    *,
    BW: float | None = None,
    FPGA: Sequence[Board] | None = None,
    FPGA_connect: float | None = None,
    **options: Any,
) -> OptionGroup[DevicePlanConfig] | FpgaPlatform:
    """Describe a platform (``Platform_Metadata``): existing devices, or FPGAs to design for.

    Args:
        devices: a shipped device plan, as ``device_plan=`` on the command line; or for each device
            its kind, or a mapping of ``kind`` and the kind's options, such as its rates.
        BW: GB per second of host memory.
        FPGA: equal cards, each a result of ``fpga_metadata``.
        FPGA_connect: GB per second of each card's link.
        **options: with ``devices``: ``split``, the seeds of each device in a mini-batch.

    Returns:
        The devices for ``start_training``, or with ``FPGA`` the cards for ``generate_design``.

    Raises:
        ConfigError: an argument is missing or out of range, cards differ, or an option is invalid.
    """
    if devices is not None:
        if (BW, FPGA, FPGA_connect) != (None, None, None):
            raise ConfigError(
                "platform_metadata: expected either devices, or BW, FPGA and FPGA_connect"
            )
        return device_metadata(devices, **options)
    if options:
        raise ConfigError(
            f"platform_metadata: {brief(next(iter(options)))}: expected none without devices"
        )
    if not FPGA or not all(isinstance(card, Board) for card in FPGA):
        raise ConfigError(f"FPGA={brief(FPGA)}: expected a list of results of fpga_metadata")
    if any(card != FPGA[0] for card in FPGA):
        raise ConfigError("FPGA: expected equal cards, since they share one design")
    for name, value in (("BW", BW), ("FPGA_connect", FPGA_connect)):
        if value is None or not value > 0:
            raise ConfigError(f"{name}={value}: expected GB per second above 0")
    assert BW is not None
    assert FPGA_connect is not None
    linked = [replace(card, link_bandwidth=FPGA_connect * _GB) for card in FPGA]
    return FpgaPlatform(boards=tuple(linked), host_bandwidth=BW * _GB)


@standard_arithmetic()
def generate_design(
    model: OptionGroup[ModelConfig],
    sampler: str | Mapping[str, Any],
    platform: FpgaPlatform,
    *,
    graph: OptionGroup[GraphSource] | None = None,
    published: str = "products",
    batch_size: int = 1024,
    directory: str | Path | None = None,
    bitstream: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[Bitstream, Runtime]:
    """Explore designs for an FPGA platform, and generate the best one (``Generate_Design``).

    Args:
        model: result of ``gnn_model``.
        sampler: a sampler as ``sampler=`` on the command line, or its options.
        platform: result of ``platform_metadata`` with ``FPGA``.
        graph: result of ``load_input_graph``, to sample for the sizes of mini-batches.
        published: published graph with these sizes, used without ``graph``.
        batch_size: seeds of a card's mini-batch.
        directory: output folder of the design. None: nothing is written.
        bitstream: an .xclbin file built from the design. None: C simulation.
        options: ``seed``, ``mode`` and ``system`` of ``gnnscale generate``.

    Returns the bitstream for ``init``, and the runtime for ``start_training``. ConfigError: no
    design fits, or the kernels do not support the model or the sampler.
    """
    check_option_group("model", model, "model")
    if not isinstance(platform, FpgaPlatform):
        raise ConfigError(f"platform={brief(platform)}: expected platform_metadata(FPGA=...)")
    sampling = {"sampler": sampler} if isinstance(sampler, str) else dict(sampler)
    name = sampling.pop("sampler", "neighbor")
    config = GenerateConfig(
        board=platform.boards[0],
        model=model.config,
        sampler=choose("sampler", name, SamplerConfig, sampling).config,
        graph=published,
        batch_size=batch_size,
        cards=len(platform.boards),
        link_share=platform.link_share,
        dataset=None if graph is None else graph.config,
        **_generate_options(options or {}),
    )
    if directory is not None:
        check_output(Path(directory), package.NAMES, option="directory")
    with torch.random.fork_rng():
        generated = generate(config)
    devices = [_device(generated, platform.boards[0], bitstream)] * config.cards
    plan = choose("device_plan", "cpu", DevicePlanConfig, {"devices": devices})
    sampler_options = {f"sampler.{key}": value for key, value in sampling.items()}
    runtime = Runtime(
        model=model,
        platform=plan,
        options={"batch_size": batch_size * config.cards, "sampler": name, **sampler_options},
        generated=generated,
        directory=None if directory is None else _write(generated, Path(directory), model),
    )
    file = None if bitstream is None else Path(bitstream)
    return Bitstream(generated.design, file=file, header=generated.header), runtime


def _generate_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``seed``, ``mode`` and ``system`` of ``options``, which has no other, or defaults."""
    with separate_hydra():
        composed: Any = OmegaConf.to_container(compose("generate", [])[0])
    defaults = {key: composed[key] for key in ("seed", "mode", "system")}
    for option in sorted(set(options) - set(defaults)):
        raise ConfigError(f"options: {brief(option)}: expected {', '.join(defaults)}")
    return {**defaults, **options}


def _device(generated: DesignPackage, card: Board, bitstream: str | Path | None) -> dict[str, Any]:
    return {
        "kind": "fpga",
        "bitstream": None if bitstream is None else str(bitstream),
        **{name: getattr(generated.design, name) for name in _SIMULATED},
        "memory_bytes": card.memory_bytes,
        "link_bandwidth": generated.link_bandwidth,
    }


def _write(generated: DesignPackage, directory: Path, model: OptionGroup[ModelConfig]) -> Path:
    options = {"model": {key: value for key, value in model.values.items() if key != "_target_"}}
    with create_output_folder(directory, package.NAMES, option="directory"):
        generated.write(directory, groups={}, options=options)
        write_json(directory / "estimate.json", fpga_design.describe(generated))
        write_atomically(directory / "estimate.html", fpga_design.page(generated))
        write_json(directory / "design.json", generated.design.plain())
    return directory


def init(bitstream: Bitstream) -> None:
    """Prepare the cards (``Init``): compile the simulation, or check that file and ``pyxrt`` exist.

    ConfigError: the bitstream file, ``pyxrt`` or a compiler is missing.
    """
    if not isinstance(bitstream, Bitstream):
        raise ConfigError(f"bitstream={brief(bitstream)}: expected the result of generate_design")
    if bitstream.file is not None:
        if not bitstream.file.is_file():
            raise ConfigError(f"bitstream={bitstream.file}: no such file")
        build.load_pyxrt()
        return
    design: Any = {name: getattr(bitstream.design, name) for name in _SIMULATED}
    build.library(build.SimulatedDesign(**design, header=bitstream.header))
