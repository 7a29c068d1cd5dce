"""A module's tests are where its name says, or here is said where they are instead."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "gnnscale"

#: Modules without a test file of their own: where they are tested, and why there.
ELSEWHERE = {
    "api/modules.py": ("api/test_results.py", "training a module of one's own"),
    "api/options.py": ("api/test_design.py", "how functions of the design phase choose"),
    "backend/base.py": ("backend/test_cpu.py", "a protocol"),
    "cli/arguments.py": ("cli/test_odd_lines.py", "what is wrong with a line, told by the command"),
    "cli/completion.py": ("cli/test_odd_lines.py", "as a shell asks"),
    "cli/errors.py": ("cli/test_odd_lines.py", "what is wrong with a line, told by the command"),
    "cli/job.py": ("cli/test_plugins.py", "what launchers send to other processes"),
    "cli/staging.py": ("cli/test_foreign_files.py", "what others' files may say"),
    "cli/tasks.py": ("cli/test_command.py", "the commands"),
    "dataset/ids.py": ("dataset/readers/test_tables.py", "ids of the user's tables"),
    "dataset/formats/pickle_objects.py": ("dataset/formats/test_pickled.py", "parts of pickles"),
    "dataset/formats/sparse.py": ("dataset/readers/test_crafted.py", "matrices in readers' files"),
    "dataset/given.py": ("dataset/test_interop.py", "what graphs in memory are made of"),
    "dataset/readers/csr.py": ("dataset/readers/test_layouts.py", "all readers alike"),
    "dataset/readers/gnn_benchmark.py": ("dataset/readers/test_layouts.py", "all readers alike"),
    "dataset/readers/graphsaint.py": ("dataset/readers/test_layouts.py", "all readers alike"),
    "dataset/readers/heterophilous.py": ("dataset/readers/test_layouts.py", "all readers alike"),
    "dataset/readers/mag240m.py": ("dataset/readers/test_layouts.py", "all readers alike"),
    "dataset/readers/musae.py": ("dataset/readers/test_layouts.py", "all readers alike"),
    "dataset/readers/musae_labels.py": ("dataset/readers/test_layouts.py", "all readers alike"),
    "dataset/readers/snap.py": ("dataset/readers/test_layouts.py", "all readers alike"),
    "dataset/storage/edge_spool.py": ("dataset/storage/test_sorted_lists.py", "what is sorted"),
    "dataset/storage/features.py": ("dataset/storage/test_store.py", "what a store writer uses"),
    "dataset/structure.py": ("dataset/test_synthetic.py", "labels made up for edges"),
    "dataset/tables/arrays.py": ("dataset/readers/test_tables.py", "a part of the reader"),
    "dataset/tables/batch.py": ("dataset/readers/test_tables.py", "a part of the reader"),
    "dataset/tables/csv_file.py": ("dataset/readers/test_tables.py", "a part of the reader"),
    "dataset/tables/features.py": ("dataset/readers/test_tables.py", "a part of the reader"),
    "dataset/tables/files.py": ("dataset/readers/test_tables.py", "a part of the reader"),
    "dataset/tables/ids.py": ("dataset/readers/test_tables.py", "a part of the reader"),
    "dataset/tables/labels.py": ("dataset/readers/test_tables.py", "a part of the reader"),
    "dataset/tables/table.py": ("dataset/readers/test_tables.py", "a part of the reader"),
    "export/for_dgl.py": ("export/test_weights.py", "whose weights are loaded there"),
    "export/for_pyg.py": ("export/test_weights.py", "whose weights are loaded there"),
    "export/peer.py": ("export/test_weights.py", "what peers have in common"),
    "feature/aggregation.py": ("feature/test_store.py", "what stores aggregate by"),
    "feature/options.py": ("feature/test_store.py", "opens what the tests of stores use"),
    "artifact/key.py": ("artifact/test_kind.py", "digests, as places are named by them"),
    "loader/arguments.py": ("loader/test_neighbor_loader.py", "what a loader is asked for"),
    "loader/batch_format.py": ("loader/test_neighbor_loader.py", "what a loader yields"),
    "loader/data.py": ("loader/test_neighbor_loader.py", "what a loader is given"),
    "model/attention.py": ("model/test_gat.py", "the attention of GAT"),
    "model/layer.py": ("model/test_gnn.py", "a protocol"),
    "model/options.py": ("model/test_gnn.py", "the options of models, as they are built"),
    "plan/calibration/contention.py": ("plan/calibration/test_calibrate.py", "a part of it"),
    "plan/calibration/probes.py": ("plan/calibration/test_calibrate.py", "a part of it"),
    "plan/perf/predict.py": ("plan/test_planner.py", "predictions, as they are planned with"),
    "plan/published.py": ("plan/test_simulator.py", "the papers' machines, simulated"),
    "report/page/balance.py": ("report/files/test_outcome.py", "parts of the page"),
    "report/page/bars.py": ("report/files/test_outcome.py", "parts of the page"),
    "report/page/sections.py": ("report/files/test_outcome.py", "parts of the page"),
    "runtime/evaluation/examine.py": (
        "runtime/evaluation/test_validator.py",
        "what it measures by",
    ),
    "runtime/evaluation/links.py": ("runtime/test_links.py", "ranks, as runs are measured by them"),
    "runtime/drm/damping.py": ("runtime/drm/test_rebalance.py", "memory between decisions"),
    "runtime/drm/move.py": ("runtime/drm/test_rebalance.py", "what a decision does"),
    "runtime/planning/workloads.py": ("runtime/planning/test_search.py", "what is planned for"),
    "runtime/processes/begin.py": (
        "runtime/processes/test_server.py",
        "what a worker does first",
    ),
    "runtime/processes/fork_server.py": (
        "runtime/processes/test_server.py",
        "the server's own process",
    ),
    "runtime/processes/messages.py": ("runtime/processes/test_launch.py", "records alone"),
    "runtime/state.py": ("runtime/test_train.py", "where a run stands, as it trains"),
    "runtime/sync/exchange.py": ("runtime/test_own_parts.py", "a protocol"),
    "runtime/sync/p3/exchange.py": ("runtime/sync/p3/test_split_run.py", "needs several processes"),
    "runtime/sync/p3/split_model.py": (
        "runtime/sync/p3/test_split_run.py",
        "needs several processes",
    ),
    "runtime/sync/p3/weights.py": ("runtime/sync/p3/test_split_run.py", "needs several processes"),
    "runtime/sync/statistics.py": ("runtime/sync/test_group.py", "needs several processes"),
    "runtime/sync/synchronizer.py": ("runtime/sync/test_group.py", "needs several processes"),
    "runtime/telemetry/memory.py": ("runtime/processes/test_launch.py", "memory that is shared"),
    "runtime/telemetry/recorder.py": ("runtime/test_train.py", "records of steps and epochs"),
    "task/base.py": ("runtime/test_links.py", "a protocol"),
    "task/links/task.py": ("runtime/test_links.py", "what a run makes of edges"),
    "task/vertices.py": ("runtime/test_order.py", "what a run makes of vertices"),
}

#: Tests of no single module.
WHOLE = {
    "backend/fpga/test_kernels.py": "fpga/kernels, by their C simulation",
    "cli/test_foreign_files.py": "nothing that a file says is executed",
    "cli/test_odd_lines.py": "every wrong line gets one line",
    "cli/test_start.py": "what a command imports and starts",
    "cli/test_training_page.py": "docs/training.md",
    "dataset/readers/test_crafted.py": "files made to harm a reader",
    "dataset/readers/test_layouts.py": "the layouts of all readers",
    "dataset/readers/test_mutations.py": "damaged files of all readers",
    "dataset/readers/test_readers.py": "published files of all readers",
    "loader/test_edge_data.py": "edges and their data in all forms of batches",
    "model/test_weighted_edges.py": "all models over graphs with weights",
    "runtime/faults/test_ended.py": "runs that are ended, or lose their server",
    "runtime/faults/test_killed.py": "runs that lose a worker, and go on",
    "runtime/faults/test_refused.py": "runs without memory, or with options that do not fit",
    "runtime/test_caches.py": "no cache changes what is learnt, and hits are as predicted",
    "runtime/test_deterministic.py": "equal options give equal weights, whatever the clock says",
    "runtime/test_equivalence.py": "every plan learns what one process does",
    "runtime/test_device_memory.py": "devices whose memory is short",
    "runtime/test_fpga.py": "training on simulated FPGA cards",
    "runtime/test_learning.py": "losses, metrics and updates of one's choice",
    "runtime/test_partitions.py": "training over parts",
    "runtime/test_preaggregated.py": "training on rows aggregated beforehand",
    "runtime/test_links.py": "link prediction, from edges to ranks",
    "runtime/test_own_device.py": "a kind of accelerator from outside the package",
    "runtime/test_own_module.py": "modules of a user's own, by worker processes",
    "runtime/test_own_layer.py": "layers from outside the package",
    "runtime/test_own_parts.py": "stores, exchanges and seed orders from outside the package",
    "test_bench_perf_model.py": "scripts/bench_perf_model.py",
    "test_benchmarking.py": "scripts/benchmarking.py",
    "test_compare_accuracy.py": "scripts/compare_accuracy.py",
    "test_configs.py": "gnnscale/configs",
    "test_docs.py": "README.md and docs",
    "test_draw_caches.py": "scripts/draw_caches.py",
    "test_examples.py": "examples",
    "test_install.py": "the wheel",
    "test_layers.py": "imports",
    "test_mirror.py": "the tests themselves",
    "test_native_border.py": "all that reaches native code",
    "test_pages_run.py": "docs/from-python.md and docs/taking-home.md",
    "test_random_streams.py": "whatever is random, pinned",
    "test_skips.py": "what tests may be skipped for",
}

MODULES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)
#: Tests of scripts/fuzz and scripts/faults mirror those packages.
TEST_FILES = sorted(
    path.relative_to(TESTS).as_posix()
    for path in TESTS.rglob("test_*.py")
    if path.relative_to(TESTS).parts[0] not in ("fuzz", "faults")
)


def own(module: str) -> str:
    path = Path(module)
    return path.with_name(f"test_{path.name}").as_posix()


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_tests(module: str) -> None:
    if module not in ELSEWHERE:
        assert own(module) in TEST_FILES
        return
    where, why = ELSEWHERE[module]
    assert where in TEST_FILES
    assert why
    assert own(module) not in TEST_FILES, "it has its own now: take it off the list"


@pytest.mark.parametrize("file", TEST_FILES)
def test_every_test_file_has_a_module(file: str) -> None:
    mirrored = {own(module) for module in MODULES}
    assert (file in mirrored) != (file in WHOLE)


def test_the_lists_name_what_is_there() -> None:
    assert ELSEWHERE.keys() <= set(MODULES)
    assert WHOLE.keys() <= set(TEST_FILES)
