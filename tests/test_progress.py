from __future__ import annotations

import logging
import sys
import time

import pytest

from gnnscale import progress
from gnnscale.progress import track


@pytest.fixture
def hurry(monkeypatch):
    monkeypatch.setattr(progress, "_SHOW_AFTER", 0.02)
    monkeypatch.setattr(progress, "_LINE_INTERVAL", 0.05)
    monkeypatch.setattr(progress, "_BAR_INTERVAL", 0.01)


def test_short_work_is_silent(caplog, capsys):
    with caplog.at_level(logging.INFO), track("short", 3, "steps") as advance:
        advance(3)
    assert caplog.text == ""
    assert capsys.readouterr().err == ""


def test_lines_in_a_log(hurry, caplog):
    with caplog.at_level(logging.INFO), track("reading", 2000, "edges") as advance:
        advance(1500)
        time.sleep(0.2)
    lines = [record.message for record in caplog.records]
    assert lines[0].startswith("reading: 1,500/2,000 edges (")
    assert 3 <= len(lines) <= 8
    assert lines[-1].endswith("done")


def test_bar_on_a_terminal(hurry, caplog, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with caplog.at_level(logging.INFO), track("outer"), track("inner", 10, "steps") as advance:
        advance(5)
        time.sleep(0.2)
    shown = capsys.readouterr().err
    assert "outer" in shown
    assert "inner" in shown
    assert "5/10 steps" in shown
    assert caplog.text == ""
    assert progress._BARS._progress is None


def test_inside_another_live_display(hurry, capsys, monkeypatch):
    live = pytest.importorskip("rich.live")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with live.Live("table"), track("work"):
        time.sleep(0.1)


def test_errors_pass(hurry):
    with pytest.raises(KeyError), track("failing"):
        raise KeyError("x")
