"""Graph stores on disk: written in bounded memory and verified; raw files are downloaded."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

if TYPE_CHECKING:
    from gnnscale.data.storage.options import StoreOptions
    from gnnscale.data.storage.writer import StoreWriter

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.data.storage.options": "StoreOptions",
        "gnnscale.data.storage.writer": "StoreWriter",
    },
)
