"""What a notebook shows, in a real kernel."""

from typing import Any

import pytest

from gnnscale.core.notebook import html_table, in_notebook, report_link

CELLS = """
import gnnscale, torch
from gnnscale import api
from torch import nn

graph = api.load_input_graph("planted_partition", num_vertices=300, num_edges=1500, num_features=8)
SMALL = {"epochs": 2, "fanouts": [3, 3], "num_threads": 1}
#%
SCALE = 2.0

def scaled(x):
    return x * SCALE

class Net(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)

    def forward(self, x, adjs):
        return self.linear(scaled(x))[: adjs[-1][2][1]]
#%
result = gnnscale.train(graph, Net, **SMALL, options={"loss": lambda o, t: (o**2).mean()})
result
#%
class Net(Net):
    def forward(self, x, adjs):
        raise ArithmeticError("mine")

gnnscale.train(graph, Net, **SMALL)
#%
import os, signal

class Interrupts(gnnscale.Observer):
    def finished_epoch(self, record):
        os.kill(os.getpid(), signal.SIGINT)

gnnscale.train(graph, "sage", **SMALL, observers=[Interrupts()], directory="interrupted")
#%
len(gnnscale.train(graph, "sage", **SMALL, resume="interrupted").history)
"""


def output_of(cell: Any, kind: str) -> str:
    """Return the text of a cell's outputs of one kind."""
    data = {"stream": "text", "error": "evalue"}
    found = (each for each in cell.outputs if each.output_type == kind)
    return "".join(each[data[kind]] if kind in data else each.data["text/html"] for each in found)


@pytest.mark.integration
def test_a_notebook_trains_its_own_module(tmp_path, monkeypatch, write_figures) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    monkeypatch.setenv("GNNSCALE_HOME", str(write_figures(tmp_path / "home")))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    sources = CELLS.split("#%\n")
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    book = nbformat.v4.new_notebook(cells=cells)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=200, allow_errors=True, resources=where).execute()
    _, _, trained, failed, interrupted, resumed = book.cells
    shown = output_of(trained, "stream")
    assert "run directory: " in shown
    assert "epoch 2/2  loss " in shown
    assert ", module=Net) opens the run again" in shown
    html = output_of(trained, "execute_result")
    link = html.partition('<a href="')[2].partition('"')[0]
    assert (tmp_path / link).is_file()
    assert "fails with ArithmeticError: mine (" in output_of(failed, "error")
    assert interrupted.outputs[-1].ename == "KeyboardInterrupt"
    line = "interrupted; gnnscale.train(..., resume='"
    assert f"{line}{tmp_path}/interrupted') continues the run" in output_of(interrupted, "stream")
    assert resumed.outputs[-1].data["text/plain"] == "2"


def test_a_result_is_escaped(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = html_table([("<b>", "a&b")], headings=("x", '"'))
    assert table == (
        "<table><tr><th>x</th><th>&quot;</th></tr><tr><td>&lt;b&gt;</td><td>a&amp;b</td></tr></table>"
    )
    link = report_link(tmp_path / 'a "b" #1<i>' / "report.html")
    assert link.startswith('<a href="a%20%22b%22%20%231%3Ci%3E/report.html" target="_blank">')
    assert "<i>" not in link
    assert not in_notebook()
