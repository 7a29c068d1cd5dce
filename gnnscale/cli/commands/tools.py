"""Tasks for planning and inspection: ``simulate``, ``generate`` and ``doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnscale.cli.commands.output import check_output, hydra_settings, output_folder
from gnnscale.core.config.typed import typed
from gnnscale.core.hardware import let_idle_threads_sleep

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from rich.console import Console

    from gnnscale.fpga_design import GenerateConfig


def doctor(options: DictConfig) -> None:
    """Examine this machine, or a graph store, and write ``doctor.json``."""
    let_idle_threads_sleep()

    from rich.console import Console

    from gnnscale.core.errors import GraphError
    from gnnscale.report import doctor as report
    from gnnscale.report.summary import write_json

    config = typed(options, report.DoctorConfig)
    findings = report.examine()
    report.print_findings(findings, Console())
    problem = None
    if config.store is not None:
        findings["store"] = report.examine_store(config.store)
        report.print_store(findings["store"], Console())
        problem = report.store_problem(findings["store"])
    with output_folder(options, ("doctor.json",)) as directory:
        file = directory / "doctor.json"
        write_json(file, findings)
        if config.calibrate:  # in the block: an interruption removes doctor.json
            file = _calibrate(Console())
    print(file)
    if problem is not None:
        raise GraphError(problem)


def _calibrate(console: Console) -> Path:
    """Measure this machine, print its rates and return the platform file."""
    from gnnscale.planner.calibration.calibrate import calibrate
    from gnnscale.planner.platform import platform_file
    from gnnscale.report.doctor import print_rates

    platform = calibrate()
    print_rates(platform.processor, console)
    platform.write(platform_file())
    return platform_file()


def simulate(options: DictConfig) -> None:
    """Predict training on a platform; write ``simulation.json`` and ``scaling.svg``."""
    from rich.console import Console

    from gnnscale.core.files import write_atomically
    from gnnscale.planner.simulator import SimulateConfig
    from gnnscale.planner.simulator import simulate as run_simulation
    from gnnscale.report.simulate import describe, draw, print_scaling
    from gnnscale.report.summary import write_json

    scaling = run_simulation(typed(options, SimulateConfig))
    print_scaling(scaling, Console())
    with output_folder(options, ("simulation.json", "scaling.svg")) as directory:
        write_json(directory / "simulation.json", describe(scaling))
        write_atomically(directory / "scaling.svg", draw(scaling))
    print(directory)


def generate(options: DictConfig) -> None:
    """Write an FPGA design, or compare the vendor's reports with the design's estimates."""
    let_idle_threads_sleep()

    from rich.console import Console

    from gnnscale.core.files import write_atomically
    from gnnscale.fpga_design import GenerateConfig
    from gnnscale.fpga_design import generate as run_generator
    from gnnscale.fpga_design.design import DESIGN_FILE
    from gnnscale.fpga_design.package import NAMES
    from gnnscale.report import fpga_design as report
    from gnnscale.report.summary import write_json

    config = typed(options, GenerateConfig)
    if config.report is not None:
        _compare(options, config)
        return
    # Refuse the output folder before the long exploration.
    check_output(NAMES, force=config.force)
    generated = run_generator(config)
    report.print_design(generated, Console())
    groups, values = _host_options(options)
    with output_folder(options, NAMES, force=config.force) as directory:
        generated.write(directory, groups=groups, options=values)
        write_json(directory / "estimate.json", report.describe(generated))
        write_atomically(directory / "estimate.html", report.page(generated))
        write_json(directory / DESIGN_FILE, generated.design.plain())
    print(directory)


def _compare(options: DictConfig, config: GenerateConfig) -> None:
    """Compare the vendor's reports with the estimates of their design."""
    from rich.console import Console

    from gnnscale.core.files import write_atomically
    from gnnscale.fpga_design.vendor import compare
    from gnnscale.report import vendor_comparison as vendor
    from gnnscale.report.summary import write_json

    assert config.report is not None
    comparison = compare(config.report, config.design)
    vendor.print_comparison(comparison, Console())
    names = ("comparison.json", "comparison.html")
    with output_folder(options, names, force=config.force) as directory:
        write_json(directory / "comparison.json", vendor.describe(comparison))
        write_atomically(directory / "comparison.html", vendor.page(comparison))
    print(directory)


def _host_options(options: DictConfig) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the chosen groups of the training run, and the values of their options."""
    from omegaconf import OmegaConf

    from gnnscale.fpga_design.design import PARTITIONERS

    choices = hydra_settings().runtime.choices
    groups = {name: str(choices[name]) for name in ("model", "sampler")}
    partitioner = PARTITIONERS.get(options.system)
    if options.cards > 1 and partitioner is not None:
        groups["partitioner"] = partitioner
    if options.get("dataset") is not None:
        groups["dataset"] = str(choices["dataset"])
    batch_size = options.batch_size * options.cards
    values: dict[str, Any] = {"seed": options.seed, "batch_size": batch_size}
    for name in groups.keys() & options.keys():
        plain: Any = OmegaConf.to_container(options[name], resolve=True)
        values[name] = {key: value for key, value in plain.items() if key != "_target_"}
    return groups, values
