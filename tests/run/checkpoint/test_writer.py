import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from epochs import epoch
from one_line import one_line
from small_plans import plan_of, share

from gnnscale.core.errors import ConfigError
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.graph import Graph, Origin
from gnnscale.nn.optim.update_rules import optimizer_state
from gnnscale.report.summary import append_metrics, write_metrics
from gnnscale.run.checkpoint import BEST, FILES, INPUT_SCHEMA, LAST
from gnnscale.run.checkpoint.file import load_checkpoint
from gnnscale.run.checkpoint.resume import RunIdentity, epochs_before, graph_identity
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.config import RunConfig
from gnnscale.run.records import EpochRecord

STEPS = 6
PLAN = plan_of(share(num_seeds=64))
OPTIONS = {"seed": 0, "device_plan": {"devices": ["cpu"], "split": None}}


def epochs(*metrics: float) -> list[EpochRecord]:
    return [epoch(number, metric) for number, metric in enumerate(metrics, 1)]


def trained(record: EpochRecord) -> EpochRecord:
    return replace(record, valid_metric=None, eval_time_s=None)


class Run:
    def __init__(self, config: RunConfig, graph: Graph, directory: Path, seed: int) -> None:
        torch.manual_seed(seed)
        sizes = {"num_features": graph.num_features, "num_classes": graph.num_classes}
        self.model = config.model.build(**sizes)
        self.optimizer = config.optimizer.build(self.model)
        for parameter in self.model.parameters():
            parameter.grad = torch.randn_like(parameter)
        self.optimizer.step()
        self.checkpoint = RunCheckpoint(
            directory=directory,
            run=RunIdentity(
                options=OPTIONS,
                optimizer=config.optimizer,
                device_plan=config.device_plan,
                batch_size=config.batch_size,
                graph=graph,
            ),
            runtime=config.runtime,
            task=config.task,
            epochs=config.epochs,
        )

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def has(self, weights: dict[str, torch.Tensor]) -> bool:
        return all(torch.equal(self.weights()[name], weights[name]) for name in weights)

    def save(self, history: list[EpochRecord]) -> None:
        """Write what ``history`` stands behind, before its last epoch is validated."""
        self.checkpoint.save(
            model=self.model,
            optimizer=optimizer_state(self.optimizer),
            step=len(history) * STEPS,
            history=history[:-1],
            trained=trained(history[-1]),
            best_weights=self.weights(),
            plan=PLAN,
            management={"applies_from": 3},
        )
        self.checkpoint.wait()

    def save_best(self, epoch: int) -> None:
        self.checkpoint.save_best(epoch, self.weights())
        self.checkpoint.wait()

    def resume(self) -> Any:
        return self.checkpoint.resume(
            SINGLE_PROCESS, self.model, self.optimizer, steps_per_epoch=STEPS
        )


@pytest.fixture
def new_run(settings: Callable[..., RunConfig], tmp_path: Path) -> Iterator[Callable[..., Run]]:
    config = settings("epochs=9")
    graph = config.dataset.open()

    def build(seed: int = 0, graph: Graph = graph) -> Run:
        built.append(Run(config, graph, tmp_path, seed))
        (tmp_path / "config.yaml").write_text(json.dumps(built[-1].checkpoint.run.options))
        return built[-1]

    built: list[Run] = []
    yield build
    for each in built:
        each.checkpoint.close()


def test_what_was_saved_is_restored(new_run: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = new_run()
    history = epochs(0.5, 0.25)
    run.save(history)
    drawn = torch.rand(3)
    other = new_run(seed=1)
    caplog.set_level(logging.INFO)
    saved = other.resume()
    assert torch.equal(torch.rand(3), drawn)
    assert other.has(run.weights())
    states = [each.optimizer.state_dict()["state"] for each in (run, other)]
    assert states[0].keys() == states[1].keys() != set()
    for key, state in states[0].items():
        assert all(torch.equal(state[name], states[1][key][name]) for name in state)
    assert epochs_before(other.checkpoint.directory, saved) == (history[:1], trained(history[1]))
    assert saved.step == 2 * STEPS
    assert saved.plan_for(OPTIONS) == PLAN.to_values()
    assert saved.management_for(OPTIONS) == {"applies_from": 3}
    # A plan that is made anew has nobody who has managed it.
    assert saved.management_for({**OPTIONS, "num_threads": 5}) is None
    assert "resuming after epoch 2 of 9" in caplog.text


def test_epochs_are_kept_where_the_run_tells_of_them(new_run: Any, tmp_path: Path) -> None:
    run = new_run()
    history = epochs(0.5, 0.25, 0.75, 0.5)
    write_metrics(tmp_path, history[:2])
    run.save(history)
    saved = new_run(seed=1).resume()
    assert saved.records == [history[2], trained(history[3])]
    assert epochs_before(run.checkpoint.directory, saved) == (history[:3], trained(history[3]))
    append_metrics(tmp_path, history[2])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "train_')
    assert epochs_before(run.checkpoint.directory, saved) == (history[:3], trained(history[3]))
    history = epochs(0.5, 0.25, 0.75)
    write_metrics(tmp_path, history[:2])
    run.save(history)
    saved = new_run(seed=1).resume()
    write_metrics(tmp_path, history[:1])
    with one_line("metrics.jsonl: expected epochs 1 to 2 before "):
        epochs_before(run.checkpoint.directory, saved)


def test_an_epoch_is_not_validated_twice(new_run: Any, tmp_path: Path) -> None:
    run = new_run()
    history = epochs(0.5, 0.25)
    run.save(history)
    saved = new_run(seed=1).resume()
    for record in epochs(0.5, 0.25, 0.75):
        append_metrics(tmp_path, record)
    assert epochs_before(run.checkpoint.directory, saved) == (history, None)
    # That of another run, or of a time that was done again, is of no use.
    write_metrics(tmp_path, [history[0], replace(history[1], epoch_time_s=2.0)])
    assert epochs_before(run.checkpoint.directory, saved) == (history[:1], trained(history[1]))


def test_a_checkpoint_does_not_grow_with_the_epochs(new_run: Any, tmp_path: Path) -> None:
    run = new_run()
    sizes = []
    for number in (2, 200):
        history = epochs(*[0.5] * number)
        write_metrics(tmp_path, history[:-1])
        run.save(history)
        sizes.append((tmp_path / LAST).stat().st_size)
    assert sizes[1] - sizes[0] < 100


def test_best_weights_are_written_where_they_are_new(new_run: Any, tmp_path: Path) -> None:
    run = new_run()
    run.save_best(1)
    assert load_checkpoint(tmp_path / BEST)["epoch"] == 1
    (tmp_path / BEST).unlink()
    run.save_best(1)
    assert not (tmp_path / BEST).exists()
    run.save_best(3)
    assert load_checkpoint(tmp_path / BEST)["epoch"] == 3


def test_it_is_due_after_a_while(new_run: Any, clock: Any) -> None:
    run = new_run()
    checkpoint = run.checkpoint
    assert checkpoint.is_due
    run.save(epochs(0.5))
    assert not checkpoint.is_due
    # One that takes half a second waits for five.
    for took_s, waits in ((checkpoint.took_s, 0.75), (0.5, 3.75)):
        checkpoint.took_s = took_s
        clock.advance(waits)
        assert not checkpoint.is_due
        clock.advance(0.25)
        assert checkpoint.is_due
    assert not checkpoint.is_due_inside


def test_with_an_interval_it_is_due_inside_epochs_too(new_run, settings, clock) -> None:
    every = settings("runtime.checkpoint_every_s=60")
    checkpoint = replace(new_run().checkpoint, runtime=every.runtime, saved_at=clock.now)
    # Not at the start: what a kill undoes then is the start.
    assert not checkpoint.is_due
    assert not checkpoint.is_due_inside
    clock.advance(60)
    assert checkpoint.is_due
    assert checkpoint.is_due_inside
    checkpoint.took_s = 50.0  # it takes what was asked for
    assert checkpoint.is_due
    off = settings("runtime.checkpoint_every_s=60", "runtime.checkpoint=false")
    assert not replace(checkpoint, runtime=off.runtime).is_due_inside


#: What a run directory without a checkpoint may have of a run that has done an epoch.
DONE = {
    "checkpoints/best.safetensors": "x",
    "checkpoints/signature.json": "{}",
    "metrics.jsonl": '{"epoch": 1, "train_',
    "summary.json": '{"status": "failed", "epochs": 1}',
    "steps.jsonl": '{"global_step":5,"epoch":1,"s":0}\n{"global_step":6,"epoch":2,"s":0}\n{"glo',
}
#: And of one that has not.
NOT_DONE = {
    "metrics.jsonl": "",
    "summary.json": '{"status": "interrupted", "epochs": 0}',
    "steps.jsonl": '{"global_step":5,"epoch":1,"seconds":0}\n',
    "train.log": "",
}


@pytest.mark.long
def test_a_run_that_has_lost_its_checkpoint_is_refused(new_run: Any, tmp_path: Path) -> None:
    run = new_run()
    (tmp_path / "checkpoints").mkdir()
    before = run.weights()
    for name, content in DONE.items():
        (tmp_path / name).write_text(content)
        for restarts in (False, True):
            run.checkpoint.restarts = restarts
            if restarts and "/" not in name:
                # Its machine was lost just after the first epoch: nobody is there to ask.
                assert run.resume() is None
                continue
            with one_line(f" {name}" if "/" in name else name, f"{LAST} is missing; copy it to ch"):
                run.resume()
            assert run.has(before)
            assert (tmp_path / name).read_text() == content
        (tmp_path / name).unlink(missing_ok=True)


def test_a_run_that_has_done_no_epoch_starts_again(new_run, tmp_path, caplog) -> None:
    others = ("{", "[1]", '{"epochs": "x"}', '{"epochs": true}', "[" * 10**5)
    for name, content in (*NOT_DONE.items(), *(("summary.json", each) for each in others)):
        (tmp_path / name).write_text(content)
        assert new_run().resume() is None
        (tmp_path / name).unlink(missing_ok=True)
    run = new_run()
    before = run.weights()
    caplog.set_level(logging.INFO)
    assert run.resume() is None
    assert run.has(before)
    assert "stopped before its first checkpoint; it starts again" in caplog.text
    options = json.dumps({**run.checkpoint.run.options, "seed": 77})
    (tmp_path / "config.yaml").write_text(options)
    with one_line("resume: seed is", "config.yaml was written with 77"):
        run.resume()


def test_a_run_without_checkpoints_is_not_resumed(new_run, settings, tmp_path) -> None:
    run = new_run()
    run.checkpoint.runtime = settings("runtime.checkpoint=false").runtime
    write_metrics(tmp_path, epochs(0.5))
    with one_line("metrics.jsonl has epochs of it, and runtime.checkpoint=false wrote no checkp"):
        run.resume()


def test_best_weights_that_are_lost_are_written_again(new_run: Any, tmp_path: Path) -> None:
    run = new_run()
    run.save_best(1)
    content = (tmp_path / BEST).read_bytes()
    other = new_run()
    for name in (BEST, INPUT_SCHEMA):
        (tmp_path / name).unlink()
        other.checkpoint.restore_best(1, run.weights())
        other.checkpoint.wait()
        assert (tmp_path / INPUT_SCHEMA).exists()
        assert (tmp_path / BEST).read_bytes() == content
        other = new_run()
    (tmp_path / BEST).write_bytes(b"as it is")
    other.checkpoint.restore_best(1, run.weights())
    other.checkpoint.wait()
    assert (tmp_path / BEST).read_bytes() == b"as it is"


def test_parts_of_files_that_a_killed_process_left_are_removed(new_run, tmp_path) -> None:
    for file in FILES:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).with_name(f".{file.name}.tmp").touch()
    new_run().resume()
    assert not any((tmp_path / "checkpoints").iterdir())


def test_a_checkpoint_of_another_graph_changes_nothing(new_run: Any, tiny_graph: Graph) -> None:
    run = new_run()
    run.save(epochs(0.5))
    graph = replace(run.checkpoint.run.graph, origin=Origin(content="another"))
    other = new_run(seed=1, graph=graph)
    before = other.weights()
    with one_line("the graph's content is another, but "):
        other.resume()
    assert other.has(before)
    sizes = {"num_vertices": 5, "num_edges": 6, "num_features": 2, "num_classes": 2, "num_train": 5}
    found = graph_identity(replace(tiny_graph, origin=Origin(content="hash")))
    assert found == {"name": "tiny", **sizes, "content": "hash"}


def test_options_that_a_release_had_not_are_what_it_did(new_run: Any, monkeypatch: Any) -> None:
    before = OPTIONS | {"model": {}}
    monkeypatch.setitem(globals(), "OPTIONS", before)
    new_run().save(epochs(0.5))
    for option, message in (
        ({"drop_last": True}, "resume: drop_last is True, but .* was written with None"),
        ({"model": {"input_dropout": 0.5}}, "resume: model.input_dropout is 0.5, but "),
    ):
        monkeypatch.setitem(globals(), "OPTIONS", before | option)
        with pytest.raises(ConfigError, match=message):
            new_run().resume()
    same = {"drop_last": False, "model": {"input_dropout": 0.0}}
    monkeypatch.setitem(globals(), "OPTIONS", before | same)
    assert new_run().resume() is not None


def test_a_run_that_torchrun_starts_again_needs_its_checkpoint_alone(
    new_run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, other = new_run(), new_run(seed=1)
    run.checkpoint.restarts = other.checkpoint.restarts = True
    caplog.set_level(logging.INFO)
    assert run.resume() is None  # the run begins
    assert caplog.messages == []
    history = epochs(0.5, 0.25, 0.75)
    write_metrics(tmp_path, history[:2])
    run.save(history)
    (tmp_path / "metrics.jsonl").unlink()
    saved = other.resume()
    assert other.has(run.weights())
    assert epochs_before(other.checkpoint.directory, saved) == (history[:2], trained(history[2]))
    (tmp_path / LAST).write_bytes(b"damaged")
    with one_line("not a readable checkpoint"):
        other.resume()
