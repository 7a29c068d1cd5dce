"""Artifacts: directories of arrays, identified by their options, made once and checked on reuse."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

if TYPE_CHECKING:
    from gnnscale.core.artifact.artifact_type import ArtifactType, Form
    from gnnscale.core.artifact.files import *  # noqa: F403
    from gnnscale.core.artifact.npy import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.core.artifact.artifact_type": "ArtifactType Form",
        "gnnscale.core.artifact.files": (
            "check_limits check_lines check_space digest file_bytes file_sha256 new_folder "
            "open_regular plain read_file size total_bytes"
        ),
        "gnnscale.core.artifact.npy": (
            "ArrayEntry NpyHeader NpyWriter SLICE_BYTES check_array map_npy row_slices write_array"
        ),
    },
)
