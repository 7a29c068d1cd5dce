"""Data that the launching process and its workers exchange, pickled.

Classes and functions of a module that workers can import are pickled by name, all others by value:
those of the program or notebook itself, and those defined inside a function. Workers never import
the program. Code that an option names, as ``FILE.py:NAME`` or ``MODULE:NAME``, is loaded by name.
"""

import io
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import getclosurevars
from pathlib import Path
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

import cloudpickle

from gnnscale.core import ConfigError, brief, one_line, preserved_defaults
from gnnscale.core.config.imports import importing_user_code, is_importable
from gnnscale.core.config.user_code import load_named, name_for_workers
from gnnscale.planner.registry import DeviceKind
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.config import RunConfig

#: Attributes of ``torch.nn.Module`` that hold the named parts of a module.
_PARTS_OF_MODULES = re.compile(r"\b_(modules|parameters|buffers)\.")


def dump(options: Any) -> bytes:
    """Pickle ``options``; ConfigError: a part of them, which it names, cannot be pickled."""
    try:
        return _dump(options)
    except (ConfigError, MemoryError):
        raise
    except Exception as error:  # the user's objects may define how they are pickled
        name, cause = _find_unsendable(options, error)
        raise ConfigError(
            f"{name or brief(options)}: expected a value that workers can get a copy of, got one "
            f"that cannot be copied ({type(cause).__name__}: {one_line(str(cause), 200)}); make it "
            "where it is used, such as in forward"
        ) from error


def load(content: bytes) -> Any:
    """Return the object that ``dump`` pickled in the launching process of this run."""
    # Settings of torch by an imported module must not affect the worker.
    with preserved_defaults(), importing_user_code():
        return pickle.loads(content)


def _dump(value: Any) -> bytes:
    content = io.BytesIO()
    pickler = _Pickler(content)
    try:
        pickler.dump(value)
    finally:
        pickler.forget_modules()
    return content.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler of code by value if its module cannot be imported in another process."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._checked: set[Any] = set()  # modules of pickled code
        self._registered: set[Any] = set()  # modules that this object registered with cloudpickle

    def reducer_override(self, value: Any) -> Any:
        """Pickle a class or function by the name that an option gives it, if any.

        Code keeps the name of its file, for tracebacks. A module of torch.fx, such as one of PyG's
        ``to_hetero``, keeps its graph, which torch would trace anew. Other values are pickled as by
        cloudpickle.
        """
        if isinstance(value, CodeType):
            build, fields = self.dispatch_table[CodeType](value)
            return _build_code, (build, fields, value.co_filename)
        if isinstance(value, (type, FunctionType)):
            if (name := name_for_workers(value)) is not None:
                return _load_again, (name,)
            module = sys.modules.get(value.__module__)
            if module is not None and module not in self._checked:
                self._checked.add(module)
                self._send_by_value(module)
        fx = sys.modules.get("torch.fx")
        if fx is not None and isinstance(value, fx.GraphModule):
            # The graph refers to the module, which the state does not create.
            return _new_graph_module, (), vars(value), None, None, _set_graph_module
        return super().reducer_override(value)

    def _send_by_value(self, module: Any) -> None:
        """Let cloudpickle send code of ``module`` by value if workers cannot import it."""
        registered = cloudpickle.list_registry_pickle_by_value()
        if not is_importable(module) and module.__name__ not in registered:
            cloudpickle.register_pickle_by_value(module)
            self._registered.add(module)

    def forget_modules(self) -> None:
        """Undo the registrations, which apply to all users of cloudpickle in the process."""
        for module in self._registered:
            with suppress(ValueError):  # another thread has been faster
                cloudpickle.unregister_pickle_by_value(module)


def _load_again(name: str) -> Any:
    return load_named(name, option="worker")


def _build_code(build: Callable[..., CodeType], fields: Sequence[Any], file: str) -> CodeType:
    return build(*fields).replace(co_filename=file)


def _new_graph_module() -> Any:
    from torch.fx import GraphModule

    return GraphModule.__new__(GraphModule)


def _set_graph_module(module: Any, attributes: Mapping[str, Any]) -> None:
    from torch import nn

    root = nn.Module()
    vars(root).update(attributes)
    module.__init__(root, attributes["_graph"])


def _find_unsendable(value: Any, error: Exception) -> tuple[str, Exception]:
    """Return dotted name and error of the innermost part of ``value`` that cannot be pickled.

    ``error`` is that of ``value`` itself, whose name is empty.
    """
    path: list[str] = []
    visited = {id(value)}
    while (part := _unsendable_part(value, visited)) is not None:
        name, value, error = part
        visited.add(id(value))
        path.append(name)
    return _PARTS_OF_MODULES.sub("", ".".join(path)), error


def _unsendable_part(value: Any, visited: set[int]) -> tuple[str, Any, Exception] | None:
    """Return name, value and error of the first part of ``value`` that cannot be pickled.

    None: all can. Parts whose ids are ``visited`` are skipped.
    """
    for name, part in _parts(value):
        if id(part) in visited:
            continue
        try:
            _dump(part)
        except Exception as error:
            return name, part, error
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of ``value`` with their names: items, attributes, globals of a function."""
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set)):
        yield from ((str(index), item) for index, item in enumerate(value))
    elif isinstance(value, FunctionType):
        with suppress(ValueError):  # a cell without a value
            variables = getclosurevars(value)
            yield from {**variables.nonlocals, **variables.globals}.items()
    elif not isinstance(value, type):
        yield from getattr(value, "__dict__", {}).items()
        yield type(value).__name__, type(value)
    else:
        slots = (MemberDescriptorType, GetSetDescriptorType)
        yield from (item for item in vars(value).items() if not isinstance(item[1], slots))
        yield from ((base.__name__, base) for base in value.__bases__)


#: Replies of the launching process to a finished epoch.
STOP, CONTINUE = b"stop", b"continue"


@dataclass(frozen=True, kw_only=True)
class WorkerTask:
    """Arguments of a worker process."""

    config: RunConfig  #: options of the run
    directory: Path  #: the run directory
    options: dict[str, Any]  #: ``config`` as plain values
    rank: int  #: position of the worker's device in the plan
    size: int  #: number of workers
    rendezvous: Path | None  #: file through which workers connect; None: there is one worker
    heartbeats: Path  #: file of all heartbeats
    backend: str  #: backend of torch.distributed
    artifacts: tuple[RunArtifact, ...]  #: artifacts made by the launching process
    kinds: tuple[DeviceKind, ...]  #: custom device kinds that the launching process has registered
    code: dict[str, Any]  #: code that options name and workers cannot import, by its name
    profiles_memory: bool = False  #: whether to profile memory instead of training
    #: whether an observer may end training, so that workers wait for its reply after each epoch
    may_stop: bool = False


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Reason why a worker ends early."""

    #: ``user``: the user can fix it, ``peer``: another worker failed, ``memory``: out of memory,
    #: ``killed``: the process has ended without a report, ``error``: any other error
    kind: str
    message: str  #: one line
    trace: str = ""  #: the traceback
