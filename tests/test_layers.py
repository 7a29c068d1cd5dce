"""What the import linter cannot see: who imports the compiled extension."""

from __future__ import annotations

import re
from pathlib import Path

import gnnscale


def test_only_ops_imports_the_native_extension() -> None:
    package = Path(gnnscale.__file__).parent
    importing = re.compile(
        r"^\s*(from gnnscale import .*_native|.*gnnscale\._native)", re.MULTILINE
    )
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if importing.search(path.read_text())
    }
    assert {user.split("/")[0] for user in users} == {"ops"}
