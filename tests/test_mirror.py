from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "gnnscale"

#: Tests of no single module.
WHOLE = {
    "backend/fpga/test_kernels.py": "fpga/kernels, by their C simulation",
    "cache/test_typed.py": "caches of graphs with types",
    "cli/test_damaged_runs.py": "run directories with damaged and lost files",
    "cli/test_foreign_files.py": "nothing that a file says is executed",
    "cli/test_odd_lines.py": "every wrong line gets one line",
    "cli/test_outputs.py": "what commands replace, and links that they meet",
    "cli/test_own_parts_swept.py": "parts of the user's in sweeps, and after a run",
    "cli/test_start.py": "what a command imports and starts",
    "cli/test_typed_walk.py": "all commands on a graph with types",
    "cli/test_two_writers.py": "two commands that write one directory",
    "cli/test_training_page.py": "docs/training.md",
    "data/test_entrances.py": "one rule for data in memory, arrays, tables, and other libraries",
    "data/readers/test_crafted.py": "files made to harm a reader",
    "data/readers/test_layouts.py": "the layouts of all readers",
    "data/readers/test_mutations.py": "damaged files of all readers",
    "data/readers/test_readers.py": "published files of all readers",
    "api/loader/test_edge_data.py": "edges and their data in all forms of batches",
    "nn/test_edge_features.py": "models over graphs whose edges have features",
    "api/loader/test_lightning.py": "the loader in a Trainer of PyTorch Lightning",
    "nn/test_weighted_edges.py": "all models over graphs with weights",
    "partition/test_typed.py": "partitions of graphs with types",
    "report/test_hostile_fields.py": "texts that end in another program's input",
    "training/faults/test_ended.py": "runs that are ended, or lose their server",
    "training/faults/test_killed.py": "runs that lose a worker, and go on",
    "training/faults/test_lost_machine.py": "runs under torchrun that lose a machine, and resume",
    "training/faults/test_memory_limits.py": "runs in small control groups and address spaces",
    "training/faults/test_refused.py": "runs without memory, or with options that do not fit",
    "training/faults/test_shortened_files.py": "runs whose mapped files become shorter",
    "training/test_caches.py": "no cache changes what is learnt, and hits are as predicted",
    "training/test_typed.py": "runs on graphs with types of vertices and edges",
    "training/test_rows.py": "runs over task rows: vertices as of cut-offs",
    "training/test_several_types.py": "runs that learn labels of several vertex types",
    "training/test_typed_module.py": "a user's own modules on graphs with types",
    "training/test_timed_edges.py": "labels of edges as of their times, from runs to predictions",
    "training/test_timed_links.py": "links by time, from runs to partners",
    "training/test_typed_links.py": "links of graphs with types, from edges to partners",
    "training/test_edge_features.py": "runs on graphs whose edges have features",
    "training/test_typed_edge_features.py": "the same, on graphs with types",
    "training/test_rare_classes.py": "rare classes, from validation to predictions",
    "training/test_deterministic.py": "equal options give equal weights, whatever the clock says",
    "training/test_equivalence.py": "every plan learns what one process does",
    "training/test_device_memory.py": "devices whose memory is short",
    "training/test_fpga.py": "training on simulated FPGA cards",
    "training/test_missing_parts.py": "splits without validation or test",
    "training/test_learning.py": "losses, metrics and updates of one's choice",
    "training/test_partitions.py": "training over parts",
    "training/test_preaggregated.py": "training on rows aggregated beforehand",
    "training/test_tiers.py": "rows of a disk change nothing that is learnt",
    "training/test_lists.py": "neighbour lists of a disk change nothing that is learnt",
    "training/test_typed_disk.py": "rows and lists of vertex types on a disk change nothing learnt",
    "training/test_quantized.py": "runs on features of int8 and int4",
    "training/test_links.py": "link prediction, from edges to ranks",
    "training/test_structureless.py": "noise is predicted by chance, whatever trains",
    "training/test_edges.py": "labels of edges, from tables to predictions",
    "training/test_host_work.py": "what the host does in a step, counted",
    "training/test_cuda_columns.py": "runs with P3 on cuda devices, driven by the host",
    "training/test_cuda_runs.py": "runs on a cuda device, driven by the host",
    "training/test_own_steps.py": "a device that owns its steps",
    "training/test_own_device.py": "a kind of accelerator from outside the package",
    "training/test_own_module.py": "modules of a user's own, by worker processes",
    "training/test_own_layer.py": "layers from outside the package",
    "training/test_own_parts.py": "stores, exchanges and seed orders from outside the package",
    "test_configs.py": "gnnscale/configs",
    "test_docs.py": "README.md and docs",
    "test_docstrings.py": "prose of the package",
    "test_examples.py": "examples",
    "test_install.py": "the wheel",
    "test_layers.py": "imports",
    "test_mirror.py": "the tests themselves",
    "test_names.py": "names of the package",
    "test_native_border.py": "all that reaches native code",
    "test_pages_run.py": "pages of docs whose code is run",
    "test_random_streams.py": "whatever is random, pinned",
    "test_readme_runs.py": "commands of README.md",
    "test_rtl.py": "fpga/rtl",
    "test_skips.py": "what tests may be skipped for",
}


def test_every_test_file_has_a_module() -> None:
    """A module's tests are in ``test_<module>.py`` or ``test_<module>_<topic>.py``, or in a folder.

    Tests of scripts mirror ``scripts``, and those of ops the native code; both are left out.
    """
    modules = {
        path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py")
    } | {"optimizer"}  # whose code is in its __init__

    def has_module(path: Path) -> bool:
        folder, name = path.parent.as_posix(), path.stem.removeprefix("test_")
        words = name.split("_")
        named = {"_".join(words[:end]) for end in range(1, len(words) + 1)}
        return folder in modules or any(
            (path.parent / word).as_posix() in modules for word in named
        )

    files = {
        path.relative_to(TESTS)
        for path in TESTS.rglob("test_*.py")
        if path.relative_to(TESTS).parts[0] not in ("scripts", "ops")
    }
    assert {path.as_posix() for path in files if not has_module(path)} == WHOLE.keys()


def test_every_folder_of_tests_is_collected(request: pytest.FixtureRequest) -> None:
    """By default, pytest passes over folders named ``build``."""
    skipped = request.config.getini("norecursedirs")
    folders = {each.parent for each in TESTS.rglob("test_*.py")}
    assert not [each for each in folders if any(fnmatch(each.name, name) for name in skipped)]
