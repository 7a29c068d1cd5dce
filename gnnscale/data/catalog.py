"""Names of published datasets and of file formats, and the options that read each."""

import difflib
import re
from collections.abc import Mapping
from pathlib import PurePath

from gnnscale.core import ConfigError

#: Published graphs by layout: the value of ``dataset.name``, and further names in use.
_PUBLISHED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "planetoid": {"cora": (), "citeseer": (), "pubmed": ()},
    "ogb": {
        "ogbn-arxiv": ("arxiv",),
        "ogbn-products": ("products",),
        "ogbn-papers100M": ("papers100M",),
    },
    "graphsaint": {
        "reddit": ("reddit2",),
        "flickr": (),
        "yelp": (),
        "ppi": (),
        "amazon": ("amazon-products",),
    },
    "gnn_benchmark": {
        "amazon_electronics_computers": ("amazon-computers", "amazon-computer", "computers"),
        "amazon_electronics_photo": ("amazon-photo", "amazon-photos", "photo"),
        "ms_academic_cs": ("coauthor-cs",),
        "ms_academic_phy": ("coauthor-physics", "coauthor-phy", "ms_academic_physics"),
        "cora_full": (),
        **{"cora": (), "citeseer": (), "pubmed": ()},
    },
    "heterophilous": {
        "tolokers": (),
        "questions": (),
        "minesweeper": (),
        "roman_empire": (),
        "amazon_ratings": (),
    },
    "musae": {
        "github": ("git-web-ml",),
        "facebook": ("facebook-large", "facebook-page-page"),
        "lastfm_asia": ("lastfm",),
        "deezer_europe": ("deezer",),
        "twitch": (),
    },
    "snap": {"soc-Slashdot0902": ("slashdot", "slashdot0902")},
    "mag240m": {"mag240m": ("mag240m-kddcup2021", "ogb-lsc", "ogblsc-mag240m")},
}
#: Layouts without a public address that gnnscale may download from.
_NEEDS_RAW = ("graphsaint", "mag240m", "snap")
#: Published graphs that no layout reads.
_UNREAD = (
    *("ogbn-proteins", "ogbn-mag", "ogbl-collab", "ogbl-ppa", "ogbl-citation2", "ogbl-ddi"),
    *("wikics", "actor", "chameleon", "squirrel", "cornell", "texas", "wisconsin", "film"),
    *("karate", "karate-club", "zachary", "elliptic", "elliptic-bitcoin", "movielens"),
    *("movielens-100k", "fb15k", "fb15k-237", "wn18", "wn18rr", "dblp", "imdb", "acm", "polblogs"),
    *("email-eu-core", "nell", "airports", "bitcoin-otc", "penn94", "genius", "pokec", "dgraph"),
)
#: Words for file formats and libraries, and the options that read them.
_FORMATS = {
    **dict.fromkeys(("npz", "npy", "numpy", "array"), "dataset=arrays dataset.raw=FILE.npz"),
    **dict.fromkeys(("csv", "parquet", "table", "pandas", "dataframe", "excel"), "tables"),
    **dict.fromkeys(("edgelist", "edges", "txt", "tsv", "konect", "edgetxt"), "edge_list"),
    **dict.fromkeys(("mtx", "matrixmarket", "suitesparse", "mm"), "matrix_market"),
    **dict.fromkeys(("graphml", "gml", "gexf", "xml", "networkx", "igraph"), "graphml"),
    **dict.fromkeys(("saved", "graphstore"), "dataset=store dataset.store=DIR"),
}
_OF_LAYOUT = {
    "tables": "dataset=tables dataset.raw=FOLDER, with vertices.csv and edges.csv",
    "edge_list": "dataset=edge_list dataset.raw=FILE.txt",
    "matrix_market": "dataset=matrix_market dataset.raw=FILE.mtx",
    "graphml": "dataset=graphml dataset.raw=FILE.graphml, as networkx.write_graphml writes it",
}
_ENDINGS = {
    **dict.fromkeys((".npz", ".npy"), "arrays"),
    **dict.fromkeys((".txt", ".tsv", ".edges", ".edgelist", ".el"), "edge_list"),
    **{".mtx": "matrix_market", ".graphml": "graphml"},
}
_FROM_PYTHON = (
    "in Python gnnscale.train(data) takes objects of PyG and DGL, and gnnscale.from_pyg(data)"
    ".save(DIR) writes them for dataset=store dataset.store=DIR; dataset=arrays reads .npz files"
)


def suggest_options(name: str) -> str | None:
    """Return what to write in place of ``dataset=NAME``, where NAME is no layout.

    ``name`` is a published graph, in any spelling, a file or a word for a file format. None: it is
    unknown.
    """
    path = PurePath(name)
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() in _ENDINGS:
        return f"write dataset={_ENDINGS[suffix.lower()]} dataset.raw={name}"
    if suffix.lower() in (".csv", ".parquet"):
        return f"write {_OF_LAYOUT['tables']}"
    key = _plain(name)
    for layout, names in _PUBLISHED.items():
        for published, others in names.items():
            if key in (*_names(published, others), _plain(f"{layout}{published}")):
                return _options(layout, published)
    if key in map(_plain, _UNREAD):
        return f"no layout reads {name}; {_FROM_PYTHON}"
    if key in ("pyg", "dgl", "torchgeometric", "data"):
        return _FROM_PYTHON
    options = _FORMATS.get(key)
    return None if options is None else f"write {_OF_LAYOUT.get(options, options)}"


def check_published(layout: str, name: str) -> None:
    """Raise ConfigError, which suggests a name, unless ``layout`` has a published graph ``name``.

    A layout without published graphs passes.
    """
    published = _PUBLISHED.get(layout, {})
    if not published or name in published:
        return
    spelled = [known for known in published if _plain(name) in _names(known, published[known])]
    near = spelled or difflib.get_close_matches(name, published, n=1, cutoff=0.8)
    guess = f", did you mean {near[0]!r}?" if near else ""
    raise ConfigError(
        f"dataset.name={name}: expected one of {', '.join(published)}, or dataset.raw=FOLDER with "
        f"the files of another graph{guess}"
    )


def _options(layout: str, name: str) -> str:
    words = f"write dataset={layout} dataset.name={name}"
    if layout in _NEEDS_RAW:
        words += " dataset.raw=FOLDER, with the published files, which you download yourself"
    return words


def _names(published: str, others: tuple[str, ...]) -> list[str]:
    return [_plain(name) for name in (published, *others)]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
