"""GraphML, parsed in a stream: nodes and edges with their attributes become Parquet tables."""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat

from gnnscale.core import GraphError, brief, pyarrow
from gnnscale.core.artifact.files import readable
from gnnscale.data.formats.text import opened_text

_LOG = logging.getLogger(__name__)
#: Names of the tables, in the folder that ``write_tables`` fills.
NODES, EDGES = "vertices.parquet", "edges.parquet"
#: Columns that are no attributes.
_FIXED = {"node": ("id",), "edge": ("source", "target")}
_NAMESPACE = "http://graphml.graphdrawing.org"
_CHUNK_BYTES = 1 << 20
#: Bytes that one byte of a .gz may unpack to: XML compresses well.
_RATIO = 200
#: Rows and characters of attributes that are held before they are written.
_MAX_ROWS, _MAX_CHARACTERS = 1 << 16, 16 << 20
#: Characters of one attribute, and nested elements.
_MAX_TEXT, _MAX_DEPTH = 1 << 16, 100
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def _whole(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


#: Conversion of each ``attr.type``; the Arrow types are in ``_arrow_type``.
_KINDS: Mapping[str, Callable[[str], Any]] = {
    "boolean": lambda text: _TRUTH[text.strip().lower()],
    **dict.fromkeys(("int", "long", "integer"), _whole),
    **dict.fromkeys(("float", "double"), float),
    "string": str,
}


@dataclass(kw_only=True)
class _Key:
    """Declaration of an attribute of nodes or edges."""

    name: str
    kind: str  #: one of ``_KINDS``
    default: Any = None  #: value where it is missing. None: unknown

    def widen(self, kind: str) -> None:
        """Let values be of ``kind`` as well: all are then whole numbers, numbers, or texts."""
        kinds = {_KINDS[self.kind], _KINDS[kind]}
        if len(kinds) == 1:
            return
        self.kind = "double" if kinds == {_whole, float} else "string"
        if self.default is not None:
            self.default = _KINDS[self.kind](str(self.default))


def write_tables(file: Path, folder: Path) -> None:
    """Write the nodes and edges of a GraphML file, or a .gz, as ``NODES`` and ``EDGES``.

    Columns are ``id``, or ``source`` and ``target``, as texts, and the attributes by name, null if
    unknown. GraphError, with the line: the file is damaged, has a DOCTYPE, nested graphs,
    hyperedges or edges of both directions, or an attribute is not of its type.
    """
    with _Parser(file, folder) as parser:
        parser.run()


def is_directed(file: Path) -> bool:
    """Return whether the edges of a GraphML file are directed by default."""
    with _Parser(file, None) as parser, suppress(_FoundError):
        parser.run()
    return parser.directed


class _FoundError(Exception):
    """Signal that the head of the file, up to the graph, is read."""


class _AttributeTable:
    """Columns of nodes or edges, written to Parquet in batches; the class is a context manager."""

    def __init__(self, file: Path, fixed: tuple[str, ...], keys: Mapping[str, _Key]) -> None:
        self._keys = keys
        self._rows: list[dict[str, Any]] = []
        self._num_characters = 0
        fields = [(name, pyarrow.string()) for name in fixed]
        fields += {key.name: (key.name, _arrow_type(key.kind)) for key in keys.values()}.values()
        self._schema = pyarrow.schema(fields)
        self._writer = pyarrow.parquet.ParquetWriter(file, self._schema)
        self._defaults = {key.name: key.default for key in keys.values()}

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows.append({**self._defaults, **row})
        self._num_characters += sum(len(v) for v in row.values() if isinstance(v, str))
        if len(self._rows) >= _MAX_ROWS or self._num_characters > _MAX_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._num_characters = [], 0

    def __enter__(self) -> "_AttributeTable":
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        if kind is None:
            self._flush()
        self._writer.close()


class _Parser:
    """Parser of one file into the tables of ``folder``. None: up to the graph, without tables."""

    def __init__(self, file: Path, folder: Path | None) -> None:
        self.directed = False
        self._file, self._folder = file, folder
        self._keys: dict[str, dict[str, _Key]] = {"node": {}, "edge": {}}
        self._tables: dict[str, _AttributeTable] = {}
        self._path: list[str] = []  # open elements; "" for one of another namespace
        self._row: dict[str, Any] = {}
        self._reads: list[_Key] = []  # keys whose default or value is read
        self._text: list[str] | None = None
        self._stack = ExitStack()
        self._expat = parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.EntityDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters

    def __enter__(self) -> "_Parser":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def run(self) -> None:
        """Parse the file; GraphError: damage, or content that is not read."""
        with opened_text(self._file, self._file, _RATIO) as stream:
            try:
                while True:
                    with readable(self._file):
                        data = stream.read(_CHUNK_BYTES)
                    self._expat.Parse(data, not data)
                    if not data:
                        break
            except GraphError:
                raise
            except expat.ExpatError as error:
                raise self._error(f"no valid XML ({expat.ErrorString(error.code)})") from None
            except (LookupError, ValueError) as error:  # of an unknown encoding
                raise self._error(f"cannot be read ({brief(error)})") from None
        if not self._tables:
            raise GraphError(f"{self._file}: has no <graph>")

    def _error(self, problem: str) -> GraphError:
        return GraphError(f"{self._file}: line {self._expat.CurrentLineNumber}: {problem}")

    def _refuse_doctype(self, *_: Any) -> None:
        raise self._error(
            "has a DOCTYPE, which may define entities and name other files; remove it"
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        namespace, _, name = tag.rpartition(" ")
        name = name if namespace == "" or namespace.startswith(_NAMESPACE) else ""
        parent = self._path[-1] if self._path else None
        if parent is None and name != "graphml":
            raise self._error(f"expected <graphml>, got <{brief(tag)}>")
        if len(self._path) >= _MAX_DEPTH:
            raise self._error(f"over {_MAX_DEPTH} nested elements")
        self._path.append(name)
        if parent == "graphml" and name == "key":
            self._start_key(attributes)
        elif name == "graph":
            self._start_graph(parent, attributes)
        elif parent == "graph" and name in _FIXED:
            self._start_row(name, attributes)
        elif name == "hyperedge":
            raise self._error("has a hyperedge; only edges between two nodes are read")
        elif name == "default" and parent == "key" and self._reads:
            self._text = []
        elif name == "data" and parent in _FIXED and self._path[-3] == "graph":
            self._start_data(parent, self._attribute("data", attributes, "key"))

    def _start_key(self, attributes: dict[str, str]) -> None:
        if self._tables:
            raise self._error("a <key> follows the graph; expected all before it")
        self._reads, name = [], attributes.get("attr.name")
        of = attributes.get("for", "all")
        if name is None or of not in ("node", "edge", "all"):
            return  # drawings of yEd, or attributes of the graph
        kind = attributes.get("attr.type", "string")
        if kind not in _KINDS:
            raise self._error(
                f"<key> {brief(name)}: expected attr.type of {', '.join(_KINDS)}, got {brief(kind)}"
            )
        for table in ("node", "edge") if of == "all" else (of,):
            if name in _FIXED[table]:
                if self._folder is not None:
                    _LOG.info("%s: attribute %s of each %s is not read", self._file, name, table)
                continue
            keys = self._keys[table]
            # networkx declares an attribute of numbers and texts once for each type.
            key = next((key for key in keys.values() if key.name == name), None)
            if key is None:
                key = _Key(name=name, kind=kind)
            else:
                key.widen(kind)
            keys[self._attribute("key", attributes, "id")] = key
            self._reads.append(key)

    def _start_graph(self, parent: str | None, attributes: dict[str, str]) -> None:
        if self._tables or parent != "graphml":
            raise self._error("has a graph besides the first, or inside of a node; expected one")
        self.directed = attributes.get("edgedefault") == "directed"
        if self._folder is None:
            raise _FoundError
        for name, file in (("node", NODES), ("edge", EDGES)):
            table = _AttributeTable(self._folder / file, _FIXED[name], self._keys[name])
            self._tables[name] = self._stack.enter_context(table)

    def _start_row(self, name: str, attributes: dict[str, str]) -> None:
        self._row = {column: self._attribute(name, attributes, column) for column in _FIXED[name]}
        directed = attributes.get("directed")
        if directed is not None and (directed == "true") != self.directed:
            default = "directed" if self.directed else "undirected"
            raise self._error(
                f"directed={brief(directed)} in a graph of {default} edges; expected one kind"
            )

    def _start_data(self, table: str, key: str) -> None:
        self._reads, self._text = [], None
        if key in self._keys[table]:
            self._reads, self._text = [self._keys[table][key]], []

    def _attribute(self, element: str, attributes: dict[str, str], name: str) -> str:
        if name not in attributes:
            raise self._error(f"<{element}> has no {name}")
        return attributes[name]

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)
            if sum(map(len, self._text)) > _MAX_TEXT:
                raise self._error(f"an attribute of over {_MAX_TEXT} characters")

    def _end(self, tag: str) -> None:
        name = self._path.pop()
        parent = self._path[-1] if self._path else ""
        if name in ("data", "default") and self._text is not None:
            self._end_value(name, "".join(self._text))
        elif parent == "graph" and name in _FIXED:
            self._tables[name].add(self._row)

    def _end_value(self, name: str, text: str) -> None:
        """Set the text of an element ``data`` or ``default`` as the value of its attribute."""
        self._text = None
        for key in self._reads:
            try:
                # Writers leave an unknown number empty.
                value = _KINDS[key.kind](text) if text.strip() or key.kind == "string" else None
            except (ValueError, KeyError):
                raise self._error(
                    f"{brief(key.name)} is {brief(repr(text))}, which is no {key.kind}"
                ) from None
            if name == "default":
                key.default = value
            elif key.name in self._row:
                raise self._error(f"{brief(key.name)} is given twice")
            else:
                self._row[key.name] = value


def _arrow_type(kind: str) -> Any:
    if kind == "boolean":
        return pyarrow.bool_()
    if kind == "string":
        return pyarrow.string()
    return pyarrow.float64() if _KINDS[kind] is float else pyarrow.int64()
