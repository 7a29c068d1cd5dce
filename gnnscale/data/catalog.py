"""Names of published graphs and of file formats, and the options that read each."""

import difflib
import re
from collections.abc import Mapping
from pathlib import PurePath

from gnnscale.core import ConfigError

#: Published graphs by layout: the value of ``dataset.name``, and further names in use.
_PUBLISHED: Mapping[str, Mapping[str, str]] = {
    "planetoid": {"cora": "", "citeseer": "", "pubmed": ""},
    "ogb": {"ogbn-arxiv": "arxiv", "ogbn-products": "products", "ogbn-papers100M": "papers100M"},
    "graphsaint": {
        **{"reddit": "reddit2", "flickr": "", "yelp": "", "ppi": ""},
        "amazon": "amazon-products",
    },
    "gnn_benchmark": {
        "amazon_electronics_computers": "amazon-computers computers",
        "amazon_electronics_photo": "amazon-photo photo",
        "ms_academic_cs": "coauthor-cs",
        "ms_academic_phy": "coauthor-physics",
        **dict.fromkeys(("cora_full", "cora", "citeseer", "pubmed"), ""),
    },
    "heterophilous": dict.fromkeys(
        ("tolokers", "questions", "minesweeper", "roman_empire", "amazon_ratings"), ""
    ),
    "musae": {
        **{"github": "git-web-ml", "facebook": "facebook-large", "lastfm_asia": "lastfm"},
        **{"deezer_europe": "deezer", "twitch": ""},
    },
    "snap": {"soc-Slashdot0902": "slashdot"},
    "mag240m": {"mag240m": "mag240m-kddcup2021"},
    "heco": {"acm": "heco-acm"},
    "rel_f1": {"rel_f1": "rel-f1 f1"},
}
#: Layouts whose files are not downloaded.
_NEEDS_RAW = ("graphsaint", "heco", "mag240m", "rel_f1", "snap")
#: Published graphs that no layout reads.
_UNREAD = (
    "ogbn-proteins ogbn-mag ogbl-collab ogbl-ppa ogbl-citation2 wikics actor chameleon squirrel "
    "cornell texas wisconsin karate karate-club elliptic elliptic-bitcoin movielens fb15k-237 "
    "wn18rr dblp imdb nell polblogs"
)
#: Endings of files and words for formats, by the layout that reads them.
_FORMATS = {
    "arrays": "npz npy numpy",
    "tables": "csv parquet pandas excel",
    "edge_list": "txt tsv edges edgelist konect",
    "matrix_market": "mtx matrixmarket suitesparse",
    "graphml": "graphml gml gexf networkx igraph",
}
_LAYOUTS = {word: layout for layout, words in _FORMATS.items() for word in words.split()}
_FROM_PYTHON = (
    "in Python gnnscale.train(data) takes objects of PyG and DGL, and gnnscale.from_pyg(data)"
    ".save(DIR) writes them for dataset=store dataset.store=DIR; dataset=arrays reads .npz files"
)


def suggest_options(name: str) -> str | None:
    """Return what to write in place of ``dataset=NAME``, where NAME is no layout.

    ``name`` is a published graph, in any spelling, a file or a word for a file format. None: it is
    unknown.
    """
    key, ending = _plain(name), _plain(PurePath(name.removesuffix(".gz")).suffix)
    for layout, names in _PUBLISHED.items():
        for published, synonyms in names.items():
            if key in (*_spellings(published, synonyms), _plain(layout + published)):
                raw = (
                    " dataset.raw=FOLDER, with the published files" if layout in _NEEDS_RAW else ""
                )
                return f"write dataset={layout} dataset.name={published}{raw}"
    if key in map(_plain, _UNREAD.split()):
        return f"no layout reads {name}; {_FROM_PYTHON}"
    if key in ("pyg", "dgl"):
        return _FROM_PYTHON
    layout = _LAYOUTS.get(ending or key, "")
    if layout == "tables":
        return "write dataset=tables dataset.raw=FOLDER, with vertices.csv and edges.csv"
    return f"write dataset={layout} dataset.raw={name if ending else 'FILE'}" if layout else None


def check_published(layout: str, name: str) -> None:
    """Raise ConfigError, which suggests a name, unless ``layout`` has a published graph ``name``.

    A layout without published graphs passes.
    """
    published = _PUBLISHED.get(layout, {})
    if not published or name in published:
        return
    similar = [graph for graph in published if _plain(name) in _spellings(graph, published[graph])]
    similar = similar or difflib.get_close_matches(name, published, n=1, cutoff=0.8)
    guess = f", did you mean {similar[0]!r}?" if similar else ""
    raise ConfigError(
        f"dataset.name={name}: expected one of {', '.join(published)}, or dataset.raw=FOLDER with "
        f"the files of another graph{guess}"
    )


def _spellings(published: str, synonyms: str) -> list[str]:
    return [_plain(name) for name in (published, *synonyms.split())]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
