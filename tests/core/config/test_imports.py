import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType

import own_layers
import pytest
import torch

from gnnscale.core.config.imports import (
    importing_user_code,
    is_importable,
    refuse_while_importing,
)
from gnnscale.core.errors import ConfigError


def load_from(file: Path, name: str, patch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_modules_that_another_process_imports_by_name() -> None:
    import abc
    import importlib.machinery
    import os.path
    import xml.dom.minidom

    frozen, packaged = importlib.machinery, xml.dom.minidom
    for module in (sys, abc, frozen, os.path, packaged, torch, torch._C, own_layers):
        assert is_importable(module), module
    assert is_importable(sys.modules["torch._C._autograd"])  # its library has made it


def test_modules_that_only_this_process_has(tmp_path, monkeypatch) -> None:
    (tmp_path / "json.py").write_text("")
    (tmp_path / "lonely.py").write_text("")
    shadow = load_from(tmp_path / "json.py", "json", monkeypatch)
    lonely = load_from(tmp_path / "lonely.py", "lonely", monkeypatch)
    nested = load_from(tmp_path / "lonely.py", "no_such_package.lonely", monkeypatch)
    for module in (sys.modules["__main__"], ModuleType("made"), shadow, lonely, nested):
        assert not is_importable(module), module
    monkeypatch.syspath_prepend(tmp_path)
    assert is_importable(lonely)


def test_an_old_finder_is_skipped(monkeypatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [object(), *sys.meta_path])
    assert is_importable(own_layers)


def test_runs_are_refused_during_an_import_in_its_thread_alone() -> None:
    refuse_while_importing()
    refused = []
    with importing_user_code(), importing_user_code():
        thread = threading.Thread(target=lambda: refused.append(refuse_while_importing()))
        thread.start()
        thread.join()
        with pytest.raises(ConfigError, match=r'^starts a run whenever it .* "__main__":, or move'):
            refuse_while_importing()
    assert refused == [None]
    with pytest.raises(ZeroDivisionError), importing_user_code():
        raise ZeroDivisionError
    refuse_while_importing()
