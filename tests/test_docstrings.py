import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import gnnscale

PACKAGE = Path(gnnscale.__file__).parent
OPENINGS = re.compile(r"(What|Who|Whose|Whom|Which|Where|When|How)\b")
#: Words that point to a noun elsewhere.
REFERENCES = re.compile(
    r"\b(what|which|whose|whom|those|of it|of them|the others?|the same|that of|ones)\b", re.I
)
#: Sentences with two such words or more, of all.
MAX_SHARE = 0.008

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a module."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield text


def comments(source: str) -> Iterator[str]:
    """Yield the comments of a module, a block of lines as one text."""
    block: list[str] = []
    last_line = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != last_line + 1:
                yield " ".join(block)
                block = []
            block.append(token.string.lstrip("#: "))
            last_line = token.start[0]
    yield " ".join(block)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text; an entry of ``Args:`` is one of its own.

    Literals count as one word.
    """
    text = re.sub(r"``[^`]*``", "X", text)
    for part in re.split(r"\n\s*\n|\n\s*(?=[\w*]+(?: \([^)]*\))?: )", text):
        yield from re.split(r"(?<=[.:;!?])\s+", " ".join(part.split()))


@pytest.fixture(scope="module")
def sources() -> list[str]:
    return [path.read_text() for path in PACKAGE.rglob("*.py")]


@pytest.mark.long
def test_docstrings_open_with_a_verb_or_a_noun(sources: list[str]) -> None:
    texts = [text for source in sources for text in docstrings(ast.parse(source))]
    assert len(texts) > 3000
    assert [text.partition("\n")[0] for text in texts if OPENINGS.match(text)] == []


@pytest.mark.long
def test_sentences_name_their_nouns(sources: list[str]) -> None:
    texts = [t for source in sources for t in (*docstrings(ast.parse(source)), *comments(source))]
    found = [sentence for text in texts for sentence in sentences(text) if sentence]
    unclear = [sentence for sentence in found if len(REFERENCES.findall(sentence)) >= 2]
    assert len(unclear) <= MAX_SHARE * len(found), unclear


def test_sentences_are_split() -> None:
    text = "Return x. Args:\n    a: the rows, of which ``what`` is one.\n    b: which; what"
    expected = ["Return x.", "Args:", "a:", "the rows, of which X is one.", "b:", "which;", "what"]
    assert list(sentences(text)) == expected
