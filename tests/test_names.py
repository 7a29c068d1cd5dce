import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import gnnscale

PACKAGE = Path(gnnscale.__file__).parent
#: Words that say nothing about the value they name.
EMPTY = re.compile(
    "found|each|made|given|asked|known|own|every|others|mine|kept|held|drawn|most|ahead|before|told|"
    "said|some|rest|room|places?|begun|wanted|taken|together|alone|apart|reached|shown|left|here|"
    "there|opened|waited|seen|near|far|beside|above|below"
)
#: Bound names that are such a word; lower it with every one that goes.
NUM_EMPTY = 29


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of variables, parameters, attributes and functions that code binds."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name


@pytest.mark.long
def test_names_have_content() -> None:
    trees = (ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py"))
    names = [name for tree in trees for name in bound_names(tree)]
    assert len(names) > 20_000
    assert sum(bool(EMPTY.fullmatch(name.strip("_"))) for name in names) <= NUM_EMPTY


@pytest.mark.long
def test_class_names_stand_once() -> None:
    modules = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
