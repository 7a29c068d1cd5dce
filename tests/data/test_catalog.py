"""Words for published graphs and formats, and the options that read them."""

from importlib import resources

import pytest
from one_line import one_line

from gnnscale.core import ConfigError
from gnnscale.core.config import config_groups
from gnnscale.data import GnnBenchmark, GraphSaint, Mag240m, Musae, Ogb, Planetoid, Snap, catalog


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, "dataset=planetoid dataset.name=cora") for name in ("cora", "Cora", "CORA")),
        *(
            (name, "dataset=ogb dataset.name=ogbn-arxiv")
            for name in ("ogbn-arxiv", "ogbn_arxiv", "OGBN-ArXiv", "arxiv")
        ),
        ("ogbn-papers100M", "dataset=ogb dataset.name=ogbn-papers100M"),
        *((name, "dataset=graphsaint dataset.name=reddit") for name in ("reddit", "Reddit2")),
        ("amazon-computers", "dataset=gnn_benchmark dataset.name=amazon_electronics_computers"),
        ("Coauthor-CS", "dataset=gnn_benchmark dataset.name=ms_academic_cs"),
        ("Roman-empire", "dataset=heterophilous dataset.name=roman_empire"),
        ("github", "dataset=musae dataset.name=github"),
        ("WikiCS", "no layout reads WikiCS; in Python gnnscale.train(data)"),
        ("my/x.npz", "dataset=arrays dataset.raw=my/x.npz"),
        ("web.txt.gz", "dataset=edge_list dataset.raw=web.txt.gz"),
        ("a.MTX", "dataset=matrix_market dataset.raw=a.MTX"),
        ("vertices.csv", "dataset=tables dataset.raw=FOLDER"),
        ("edge-list", "dataset=edge_list"),
        ("PyG", "gnnscale.from_pyg(data)"),
    ],
)
def test_a_word_becomes_the_options_that_read_it(name: str, expected: str) -> None:
    assert expected in (catalog.suggest_options(name) or "")


def test_an_unknown_word_has_no_suggestion_and_all_suggested_layouts_exist() -> None:
    assert catalog.suggest_options("xyz") is None
    assert catalog.suggest_options("") is None
    layouts = {
        file.name for file in resources.files("gnnscale.configs").joinpath("dataset").iterdir()
    }
    used = {*catalog._PUBLISHED, *catalog._FORMATS}
    assert {f"{layout}.yaml" for layout in used} <= layouts
    assert used <= set(config_groups()["dataset"])


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Planetoid(name="Cora"), ("dataset.name=Cora", "did you mean 'cora'?")),
        (Planetoid(name="citeser"), ("did you mean 'citeseer'?",)),
        (Ogb(name="ogbn-proteins"), ("expected one of ogbn-arxiv, ", "dataset.raw=FOLDER")),
        (Musae(name="LastFM"), ("did you mean 'lastfm_asia'?",)),
        (GnnBenchmark(name="amazon-photo"), ("did you mean 'amazon_electronics_photo'?",)),
        (GraphSaint(name="reddit"), ("dataset.raw: required for reddit", "role.json", "https://")),
        (Mag240m(name="mag240m"), ("dataset.raw: required", "split_dict.pt", "https://")),
        (Snap(name="web"), ("dataset.raw: required for web", "<name>.txt", "https://")),
    ],
)
def test_what_cannot_be_downloaded_is_named(dataset, words) -> None:  # type: ignore[no-untyped-def]
    with one_line(*words, error=ConfigError):
        dataset.prepare()
