from __future__ import annotations

from typing import Any

from gnnscale.report.loggers.values import epoch_values, flat_options


def test_what_an_epoch_has_not_is_left_out(measured: Any) -> None:
    first, second, third = map(epoch_values, measured.epochs)
    assert (first["valid_accuracy"], third["valid_macro_f1"]) == (0.5, 0.25)
    assert not {name for name in second if name.startswith("valid")}
    assert "valid_macro_f1" not in first
    record = measured.epochs[0]
    assert first["train_loss"] == record.train_loss
    assert first["mteps"] == record.num_edges / record.epoch_time_s / 1e6
    assert all(isinstance(value, (int, float)) for value in first.values())


def test_options_have_dotted_names(options: Any) -> None:
    assert flat_options(options) == {
        "seed": "3",
        "model.hidden": "16",
        "model.dims": "[4, 5]",
        "cache_plan": "null",
    }
