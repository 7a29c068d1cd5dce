"""The design phase's hardware: FPGAs, platform, and the design that is generated for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, overload

import torch
from omegaconf import OmegaConf

from gnnscale.api.hitgnn.design import OptionGroup, check_made, choose, device_metadata
from gnnscale.backend.fpga.csim import build
from gnnscale.core import ConfigError, shown, standard_arithmetic, write_atomically
from gnnscale.core.config.compose import compose, separate_hydra
from gnnscale.core.config.run_directory import check_output, made_output
from gnnscale.data import GraphSource
from gnnscale.fpga_design import DesignPackage, GenerateConfig, GeneratedDesign, generate
from gnnscale.fpga_design import package as files
from gnnscale.nn import ModelConfig
from gnnscale.planner import DevicePlanConfig
from gnnscale.planner.fpga_board import Board, Die, Resources, board
from gnnscale.report import fpga_design as report
from gnnscale.report.summary import write_json
from gnnscale.sampling import SamplerConfig

_GB, _MHZ = 1e9, 1_000_000
#: Registers of an FPGA of this family for each LUT, and BRAM blocks of a die of a U250.
_REGISTERS_OF_LUT, _BRAM = 2, 672
_GIVEN = "given to fpga_metadata"


@dataclass(frozen=True, kw_only=True)
class FpgaPlatform:
    """What ``platform_metadata`` returns for FPGAs: alike, on one host."""

    boards: tuple[Board, ...]
    host_bandwidth: float  #: bytes per second of the host's memory

    @property
    def link_share(self) -> float:
        """Part of a link's bandwidth that is left when all are used."""
        links = len(self.boards) * self.boards[0].link_bandwidth
        return min(1.0, self.host_bandwidth / links)


class Bitstream(NamedTuple):
    """What a card is loaded with."""

    design: GeneratedDesign
    file: Path | None  #: an .xclbin; None for C simulation
    header: Path | None  #: functions of the user's layers


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The host's part of a generated design, for ``start_training``."""

    model: OptionGroup[ModelConfig]
    platform: OptionGroup[DevicePlanConfig]
    options: Mapping[str, Any]  #: others that the design was made for, by their names
    generated: DesignPackage
    directory: Path | None  #: of the design; None if it was not written


def fpga_metadata(
    name: str | None = None,
    *,
    SLR: int | None = None,
    DSP: int | None = None,
    LUT: int | None = None,
    URAM: int | None = None,
    BRAM: int = _BRAM,
    BW: float | None = None,
    MHz: int = 300,
) -> Board:
    """Describe an FPGA card (``FPGA_Metadata``).

    Args:
        name: of a board that ships, such as ``u250``; nothing else is given then.
        SLR: dies, which are alike.
        DSP: DSP slices of a die that a design may use.
        LUT: look-up tables of a die that a design may use.
        URAM: blocks of URAM of a die.
        BRAM: blocks of BRAM of a die.
        BW: GB per second of a die's memory.
        MHz: clock of the kernels.

    Raises:
        ConfigError: a figure is missing, or impossible.
    """
    given = {"SLR": SLR, "DSP": DSP, "LUT": LUT, "URAM": URAM, "BW": BW}
    if name is not None:
        more = [each for each, value in given.items() if value is not None]
        if more:
            raise ConfigError(f"fpga_metadata={shown(name)}: {more[0]} is that of the board")
        return board(name)
    for each, value in given.items():
        if value is None:
            raise ConfigError(f"fpga_metadata: {each}: required, and not given")
    assert SLR is not None
    if not 1 <= SLR <= 16:
        raise ConfigError(f"fpga_metadata: SLR={SLR}: must be from 1 to 16")
    has = Resources(
        luts=float(LUT or 0),
        registers=float(_REGISTERS_OF_LUT * (LUT or 0)),
        dsps=float(DSP or 0),
        brams=float(BRAM),
        urams=float(URAM or 0),
    )
    bandwidth = float(BW or 0) * _GB
    dies = [
        Die(
            name=f"SLR{number}",
            has=has,
            shell=Resources(),
            bank=f"DDR[{number}]",
            bandwidth=bandwidth,
        )
        for number in range(SLR)
    ]
    u250 = board("u250")
    return replace(
        u250,
        name="FPGA",
        dies=dies,
        clock_hz=MHz * _MHZ,
        sources=dict.fromkeys(u250.sources, _GIVEN) | {"power_w": "that of the U250"},
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
    """Describe a platform (``Platform_Metadata``): devices as they are, or FPGAs to design for.

    Args:
        devices: a device plan that ships, as ``device_plan=`` on the command line; or for each
            device its kind, or a mapping of ``kind`` and that kind's options: its rates, and the
            bandwidth of its memory and of its link.
        BW: GB per second of the host's memory.
        FPGA: cards, all alike, each of ``fpga_metadata``.
        FPGA_connect: GB per second of the link of each.
        **options: with ``devices``: ``split``, the seeds of each device in a mini-batch.

    Returns:
        An ``OptionGroup[DevicePlanConfig]`` for ``start_training``, or with ``FPGA`` an
        ``FpgaPlatform`` for ``generate_design``.

    Raises:
        ConfigError: a figure is missing or impossible; cards differ; or an option is not allowed.
    """
    if devices is not None:
        if (BW, FPGA, FPGA_connect) != (None, None, None):
            raise ConfigError("platform_metadata: devices, or BW, FPGA and FPGA_connect; not both")
        return device_metadata(devices, **options)
    if options:
        raise ConfigError(f"platform_metadata: {shown(next(iter(options)))}: only with devices")
    if not FPGA or not all(isinstance(each, Board) for each in FPGA):
        raise ConfigError(f"FPGA={shown(FPGA)}: must be a list of what fpga_metadata returns")
    if any(each != FPGA[0] for each in FPGA):
        raise ConfigError("FPGA: cards differ, and one design is generated for all of them")
    for name, value in (("BW", BW), ("FPGA_connect", FPGA_connect)):
        if value is None or not value > 0:
            raise ConfigError(f"{name}={value}: must be above 0, in GB per second")
    assert BW is not None
    assert FPGA_connect is not None
    linked = [replace(each, link_bandwidth=FPGA_connect * _GB) for each in FPGA]
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
    """Explore designs, and generate the best one (``Generate_Design``).

    Args:
        model: of ``gnn_model``.
        sampler: a sampler as ``sampler=`` on the command line, or its options.
        platform: of ``platform_metadata`` with ``FPGA``.
        graph: of ``load_input_graph``, whose mini-batches count; None for those of ``published``.
        published: a published graph.
        batch_size: seeds of a card's mini-batch.
        directory: the folder that the design is written to, which holds no design; None writes
            nothing.
        bitstream: an .xclbin that was built of the design; None for C simulation.
        options: others of ``gnnscale generate``, such as ``mode`` and ``system``.

    Raises:
        ConfigError: no design fits; or the kernels do not have the model or the sampler.
    """
    check_made("model", model, "model")
    if not isinstance(platform, FpgaPlatform):
        raise ConfigError(f"platform={shown(platform)}: must be platform_metadata(FPGA=...)")
    card = platform.boards[0]
    sampling = {"sampler": sampler} if isinstance(sampler, str) else dict(sampler)
    name = sampling.pop("sampler", "neighbor")
    chosen = choose("sampler", name, SamplerConfig, sampling)
    with separate_hydra():
        composed: Any = OmegaConf.to_container(compose("generate", [])[0])
    plain = {key: composed[key] for key in ("seed", "mode", "system")}
    asked = {**plain, **(options or {})}
    unknown = sorted(set(asked) - set(plain))
    if unknown:
        raise ConfigError(f"options: {shown(unknown[0])}: allowed are {', '.join(plain)}")
    config = GenerateConfig(
        board=card,
        model=model.config,
        sampler=chosen.config,
        graph=published,
        batch_size=batch_size,
        cards=len(platform.boards),
        link_share=platform.link_share,
        dataset=None if graph is None else graph.config,
        **asked,
    )
    if directory is not None:
        check_output(Path(directory), files.NAMES, option="directory")
    with torch.random.fork_rng():
        made = generate(config)
    device = _device(made, card, bitstream)
    plan = choose("device_plan", "cpu", DevicePlanConfig, {"devices": [device] * config.cards})
    own = {f"sampler.{key}": value for key, value in sampling.items()}
    runtime = Runtime(
        model=model,
        platform=plan,
        options={"batch_size": batch_size * config.cards, "sampler": name, **own},
        generated=made,
        directory=None if directory is None else _written(made, Path(directory), model),
    )
    file = None if bitstream is None else Path(bitstream)
    return Bitstream(design=made.design, file=file, header=made.header), runtime


def _device(made: DesignPackage, card: Board, bitstream: str | Path | None) -> dict[str, Any]:
    design = made.design
    return {
        "kind": "fpga",
        "bitstream": None if bitstream is None else str(bitstream),
        "n": design.n,
        "m": design.m,
        "row_words": design.row_words,
        "compute_units": design.compute_units,
        "clock_hz": design.clock_hz,
        "memory_bytes": card.memory_bytes,
        "link_bandwidth": made.link_bandwidth,
    }


def _written(made: DesignPackage, directory: Path, model: OptionGroup[ModelConfig]) -> Path:
    options = {"model": {key: each for key, each in model.values.items() if key != "_target_"}}
    with made_output(directory, files.NAMES, option="directory"):
        made.write(directory, groups={}, options=options)
        write_json(directory / "estimate.json", report.describe(made))
        write_atomically(directory / "estimate.html", report.page(made))
        write_json(directory / "design.json", made.design.plain())
    return directory


def init(bitstream: Bitstream) -> None:
    """Prepare the cards (``Init``): compile the simulation, or check that the bitstream is there.

    Raises:
        ConfigError: there is no such file, or no compiler.
    """
    if not isinstance(bitstream, Bitstream):
        raise ConfigError(f"bitstream={shown(bitstream)}: must be what generate_design returns")
    if bitstream.file is not None:
        if not bitstream.file.is_file():
            raise ConfigError(f"bitstream={bitstream.file}: no such file")
        build.load_pyxrt()
        return
    design = bitstream.design
    build.library(
        build.SimulatedDesign(
            n=design.n,
            m=design.m,
            row_words=design.row_words,
            compute_units=design.compute_units,
            clock_hz=design.clock_hz,
            header=bitstream.header,
        )
    )
