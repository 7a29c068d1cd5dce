"""Imports of optional packages, with a one-line hint to install a missing package."""

from typing import Any


def import_dgl() -> Any:
    """Return the module ``dgl``.

    Raises:
        ImportError: DGL is not installed.
    """
    try:
        import dgl
    except ImportError:
        raise ImportError("DGL is not installed; pip install 'gnnscale[dgl]'") from None
    return dgl
