"""Imports of optional packages, with one line that says how to install a missing one."""

from typing import Any


def import_dgl() -> Any:
    """Return the module ``dgl``.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import dgl
    except ImportError:
        raise ImportError("DGL is not installed; pip install 'gnnscale[dgl]'") from None
    return dgl
