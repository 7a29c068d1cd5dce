"""Arrays, tensors and lists of a user, checked and converted for a ``Graph`` in memory."""

import logging
import sys
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import torch

from gnnscale.core import Array, GraphError, IntArray, brief
from gnnscale.data import validation
from gnnscale.data.labels import Labels, read_labels
from gnnscale.data.storage import standardize
from gnnscale.data.tables.label_columns import MAX_CLASS_NAMES
from gnnscale.data.tables.roles import skip_reason, suspected_role
from gnnscale.graph import FEATURE_DTYPES, MAX_QUANTIZED, Graph, as_float32
from gnnscale.graph.store_format import MAX_CLASSES, MAX_EDGE_ROWS, MAX_FEATURES, vertex_dtype

_LOG = logging.getLogger(__name__)
#: Types that NumPy converts to an array without the method ``__array__``.
_PLAIN = (list, tuple, range, bool, int, float, complex, str)
_CURE = "For training, scale all alike, such as to mean 0 and deviation 1 over training vertices"
#: Feature types of a graph in memory.
_INPUT_DTYPES = tuple(name for name in FEATURE_DTYPES if name not in MAX_QUANTIZED)


def type_name(value: object) -> str:
    """Return the name of the type of ``value`` for a message, such as ``networkx.Graph``."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return kind.__qualname__ if library == "builtins" else f"{library}.{kind.__qualname__}"


def is_instance_of(value: Any, library: str, kind: str) -> bool:
    """Whether ``value`` is an instance of class ``kind`` (such as ``data.Data``) of ``library``.

    The library is not imported: if nobody has, there are no instances.
    """
    owner: Any = sys.modules.get(library)  # an instance exists only if the library is imported
    for name in kind.split("."):
        owner = getattr(owner, name, None)
    return isinstance(owner, type) and isinstance(value, owner)


def is_frame(value: Any) -> bool:
    """Whether ``value`` is a data frame, of pandas or polars."""
    return hasattr(value, "columns") and hasattr(type(value), "__array__")


def describe_graph(value: Any) -> str:
    """Return a phrase with the type of ``value``, given as a graph, and a hint on converting it."""
    hint, of = "", partial(is_instance_of, value)
    kinds = [f"data.{kind}" for kind in ("Data", "HeteroData", "Dataset")]
    if of("dgl", "DGLGraph") and value.is_block:
        hint = "; a block of a mini-batch is no graph"
    elif any(of("torch_geometric", kind) for kind in kinds):
        hint = "; from_pyg takes it"
    elif isinstance(value, dict) and "edge_index_dict" in value:
        hint = "; from_pyg takes OGB's dictionaries"
    elif of("dgl", "DGLGraph") or of("dgl.data", "DGLDataset"):
        hint = "; from_dgl takes it"
    elif of("networkx", "Graph"):
        hint = "; from_networkx takes it"
    elif hasattr(value, "tocoo"):
        hint = "; from_scipy takes it"
    elif isinstance(value, Graph):
        hint = "; it needs no conversion"
    return f"{type_name(value)}{hint}"


def as_array(values: Any, what: str) -> Array:
    """Return a tensor, array or list as a NumPy array, whose dtype is any but structured.

    GraphError, in which ``what`` names the values: they are no such object, or some are masked.
    """
    if isinstance(values, torch.Tensor):
        check_dense(values, what)
        values = values.detach()
        # NumPy has no bfloat16.
        values = values.float() if values.dtype == torch.bfloat16 else values
    elif not (isinstance(values, _PLAIN) or hasattr(type(values), "__array__")):
        hint = "; toarray() makes it dense" if hasattr(values, "toarray") else ""
        raise GraphError(
            f"{what}: expected an array, a tensor or a list, got {type_name(values)}{hint}"
        )
    refuse_masked(values, what)
    try:
        array: Array = np.asarray(values)
    except Exception as error:  # of an object of another library, or of a ragged list
        raise GraphError(f"{what}: expected an array ({error})") from None
    if array.dtype.names is not None:
        fields = ", ".join(map(brief, array.dtype.names))
        raise GraphError(
            f"{what}: expected numbers, got a structured array with the fields {fields}; "
            "numpy.lib.recfunctions.structured_to_unstructured gives a matrix"
        )
    return array


def refuse_masked(values: Any, what: str) -> None:
    """Raise GraphError for a masked array, or a list of masked arrays, that hides a value."""
    parts = values if isinstance(values, (list, tuple)) else (values,)
    for part in parts:
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            raise GraphError(
                f"{what}: expected a number for each value, got a masked array that hides "
                f"{np.count_nonzero(part.mask)} of {part.size}; filled(value) replaces them"
            )


def check_dense(tensor: torch.Tensor, what: str) -> None:
    """Raise GraphError, naming ``what``, unless a tensor is dense and on the CPU."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        cure = "to_dense() makes it dense" if tensor.layout != torch.strided else "cpu() copies it"
        raise GraphError(
            f"{what}: expected a dense tensor on cpu, got {brief(tensor.layout)} on "
            f"{tensor.device}; {cure}"
        )


def vertex_ids(values: Any, num_vertices: int, what: str, of: str = "vertex") -> IntArray:
    """Return a user's ids ``[n]`` of vertices as int32, or as int64 for 2^31 vertices or more.

    GraphError, in which ``what`` names the ids: a mask, no whole numbers, or out of range. For
    ``of="edge"`` they are ids of ``num_vertices`` edges.
    """
    ids = as_array(values, what)
    if ids.ndim != 1:
        raise GraphError(f"{what}: expected one axis, got {list(ids.shape)}")
    if ids.dtype.kind == "b":
        raise GraphError(f"{what}: expected ids, got a mask; numpy.flatnonzero converts it")
    if len(ids):  # an empty list is float64 to NumPy
        validation.check_ids(ids, num_vertices, what, of)
    return np.ascontiguousarray(ids, dtype=vertex_dtype(num_vertices))


def graph_labels(
    values: Any,
    *,
    num_classes: int | None,
    metric: str | None,
    num_vertices: int,
    name: str,
    what: str = "labels",
) -> Labels:
    """Return a user's vertex labels as a ``Graph`` holds them, all unknown if ``values`` is None.

    If None, ``num_classes`` and ``metric`` are derived from the labels. Errors name the labels
    ``what`` of the graph ``name``.
    """
    if num_classes is not None and not (
        isinstance(num_classes, (int, np.integer)) and 0 <= num_classes <= MAX_CLASSES
    ):
        raise GraphError(f"{name}: num_classes={brief(num_classes)}: expected 0 to {MAX_CLASSES}")
    if values is None:
        unknown = np.full(num_vertices, -1)
        return Labels(values=unknown, num_classes=num_classes or 0, metric=metric or "accuracy")
    what = f"{name}: {what}"
    _warn_of_order(values, what)
    labels, classes = _named_classes(as_array(_without_na(values), what), what)
    result = read_labels(
        labels, count=num_vertices, source=what, metric=metric, num_classes=num_classes
    )
    return replace(result, classes=classes)


def _without_na(labels: Any) -> Any:
    """Return a column of pandas with None in place of NA, or ``labels`` of another kind."""
    if is_frame(labels) and hasattr(labels, "squeeze"):
        labels = labels.squeeze(axis=1)  # a frame of a single column is its column
    dtype = getattr(labels, "dtype", None)
    has_na = not isinstance(dtype, np.dtype) or dtype.kind == "O"
    if has_na and hasattr(labels, "isna") and getattr(dtype, "kind", "") in "biuOU":
        return labels.to_numpy(dtype=object, na_value=None)
    return labels


def _named_classes(labels: Array, what: str) -> tuple[Array, list[str] | None]:
    """Return labels, texts as numbers of classes, and the sorted names of classes (None: no texts).

    Among objects, None and NaN are unknown, and so are empty texts: -1, or NaN beside fractions.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "UOT":
        return labels, None
    values = [None if value is None or value != value else value for value in labels.tolist()]
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, (int, np.integer, np.bool_)) for value in present):
        return np.array([-1 if value is None else int(value) for value in values]), None
    if present and all(isinstance(value, (Real, np.bool_)) for value in present):
        return np.array(values, np.float64), None
    if not any(isinstance(value, str) for value in present):
        return labels, None
    texts = ["" if value is None else value for value in values]
    if not all(isinstance(text, str) for text in texts):
        number = next(value for value in texts if not isinstance(value, str))
        raise GraphError(f"{what}: expected texts or numbers, got texts and {brief(number)}")
    names = sorted(set(texts) - {""})
    if len(names) > MAX_CLASS_NAMES:
        raise GraphError(
            f"{what}: {len(names)} different texts, at most {MAX_CLASS_NAMES} are classes"
        )
    number_of = {"": -1} | {text: number for number, text in enumerate(names)}
    _LOG.info("%s: texts are classes, in sorted order: %s", what, brief(", ".join(names)))
    return np.array([number_of[text] for text in texts], np.int64), names


def feature_rows(
    features: Any, name: str, *, what: str = "features", advises: bool = True
) -> tuple[Array, str]:
    """Return a user's features as an array ``[n, num_features]``, and the name of the stored type.

    The name is one of ``FEATURE_DTYPES``; bfloat16 is returned as uint16 bits, booleans as uint8,
    other types as float32. Errors name the features ``what`` of the graph ``name``. ``advises``
    says whether to warn about magnitudes and columns that impede training.
    """
    what = f"{name}: {what}"
    if advises:
        _warn_of_columns(features, what)
        _warn_of_order(features, what)
    try:
        return _feature_rows(features, what, advises)
    except GraphError as error:
        if not is_frame(features):
            raise
        cure = "gnnscale.from_tables reads columns of texts, dates and gaps"
        raise GraphError(f"{error}; {cure}") from None


def _feature_rows(features: Any, what: str, advises: bool) -> tuple[Array, str]:
    """Return rows and stored type of a user's features, which errors name ``what``."""
    columns = list(features.columns) if is_frame(features) else []
    if isinstance(features, torch.Tensor):
        check_dense(features, what)
        features = features.detach()
        dtype = str(features.dtype).removeprefix("torch.")
    else:
        features = as_array(features, what)
        dtype = str(features.dtype).replace("bfloat16", "bfloat16 of another library")
    if features.ndim != 2:
        raise GraphError(f"{what}: expected two axes, got {list(features.shape)}")
    # Rows may have no features: samplers and loaders need none.
    if not (len(features) and features.shape[1] <= MAX_FEATURES):
        raise GraphError(
            f"{what}: expected at least one row, of at most {MAX_FEATURES} features, got "
            f"{list(features.shape)}"
        )
    if dtype not in _INPUT_DTYPES:
        features, dtype = _stored(features, what, columns)
    if dtype == "bfloat16":
        if not torch.isfinite(features).all():
            exact = features.float().numpy()
            validation.refuse_not_finite(exact, exact, 0, what)
        largest = float(features.abs().max()) if features.numel() else 0.0
        rows = features.contiguous().view(torch.int16).numpy().view(np.uint16)
    else:
        rows = np.require(as_array(features, what), requirements=("C", "A"))
        largest = validation.check_features(rows, 0, what)
    if advises:
        standardize.warn_of_large(largest, what)
        spread = standardize.Spread()
        spread.add(as_float32(rows[: standardize.SAMPLED_ROWS], dtype, rows.shape[1]))
        standardize.warn_of_spread(spread, what, _CURE)
    return rows, dtype


def _stored(features: Any, what: str, columns: list[Any]) -> tuple[Array, str]:
    """Return features of a type that no graph holds as float32, booleans as uint8; and the type.

    GraphError, in which ``what`` names the features, and ``columns`` those of a data frame: they
    are no numbers, or too large.
    """
    exact = as_array(features, what)
    if exact.dtype.kind == "O":  # a data frame of numbers and booleans
        for number, value in enumerate(exact.flat):
            if not isinstance(value, Real):
                column = f": column {brief(columns[number % len(columns)])!r}" if columns else ""
                raise GraphError(f"{what}{column}: expected numbers, got {brief(repr(value))}")
        exact = exact.astype(np.float64)
    if exact.dtype.kind not in "biuf":
        kinds = ", ".join(_INPUT_DTYPES)
        raise GraphError(f"{what}: expected numbers, such as {kinds}, got {exact.dtype}")
    if exact.dtype.kind == "b":
        return exact.astype(np.uint8), "uint8"
    _LOG.info("%s: %s is converted to float32", what, exact.dtype)
    with np.errstate(over="ignore"):  # refused here
        converted = exact.astype(np.float32)
    validation.refuse_not_finite(exact, converted, 0, what)
    return converted, "float32"


def _warn_of_order(values: Any, what: str) -> None:
    """Warn of pandas data whose index has 0, 1, 2 and so on in another order: rows count."""
    index: Any = getattr(values, "index", None)
    if not hasattr(index, "is_monotonic_increasing") or index.dtype.kind not in "iu":
        return
    if not index.is_monotonic_increasing and np.array_equal(np.sort(index), np.arange(len(index))):
        _LOG.warning(
            "%s: row i is vertex i, whatever the index says, which is not in order; sort_index() "
            "orders the rows by it",
            what,
        )


def _warn_of_columns(features: Any, what: str) -> None:
    """Warn about columns of a feature data frame whose names suggest an id, a label or a split."""
    names = [] if isinstance(features, torch.Tensor) else getattr(features, "columns", [])
    suspicious = [
        f"{brief(repr(name))} ({reason})"
        for name in names
        if isinstance(name, str) and (reason := skip_reason(name) or suspected_role(name))
    ]
    if suspicious:
        _LOG.warning(
            "%s: columns of the data frame that may not be features are read as features: %s",
            *(what, ", ".join(suspicious)),
        )


def edge_features(
    features: Any,
    num_edges: int,
    name: str,
    *,
    keeps_float16: bool = False,
    advises: bool = True,
) -> Array:
    """Return a user's edge features as finite float32 ``[num_edges, num_features]``.

    ``features`` ``[num_edges]`` are one feature; with ``keeps_float16``, float16 stays.
    ``advises`` says whether to warn about magnitudes that impede training.
    """
    what = f"{name}: edge features"
    rows = as_array(features, what)
    rows = rows[:, None] if rows.ndim == 1 else rows
    is_kept = keeps_float16 and rows.dtype == np.float16
    if num_edges > MAX_EDGE_ROWS:
        raise GraphError(f"{what}: expected up to {MAX_EDGE_ROWS} edges, got {num_edges}")
    if rows.ndim == 2:
        validation.check_num_features(rows.shape[1], what)
        if rows.dtype != np.float32 and not is_kept:
            _LOG.info("%s: %s is converted to float32", what, rows.dtype)
    width = rows.shape[-1] if rows.ndim else 0
    dtype = np.float16 if is_kept else np.float32
    converted = validation.edge_features(rows, num_edges, width, source=name, dtype=dtype)
    if advises:
        spread = standardize.Spread((standardize.MAGNITUDE_OF_LAYERS,))
        spread.add(converted)
        standardize.warn_of_large(spread.largest, what)
        standardize.warn_of_spread(spread, what, _CURE)
    return converted
