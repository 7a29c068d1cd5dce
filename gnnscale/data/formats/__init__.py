"""The border of files: bytes become checked arrays here, or a one-line error."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

if TYPE_CHECKING:
    from gnnscale.data.formats.archive import Archive
    from gnnscale.data.formats.npz import ArrayFolder, NpzReader, open_arrays
    from gnnscale.data.formats.safe_pickle import array_of, load_pickle, parse_pickle, sparse_fields
    from gnnscale.data.formats.sparse import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.data.formats.archive": "Archive",
        "gnnscale.data.formats.npz": "ArrayFolder NpzReader open_arrays",
        "gnnscale.data.formats.safe_pickle": "array_of load_pickle parse_pickle sparse_fields",
        "gnnscale.data.formats.sparse": "CsrMatrix check_csr csr_edges dense_rows sparse_matrix",
    },
)
