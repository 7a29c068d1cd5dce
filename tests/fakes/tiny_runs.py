"""Options of the command line for runs that take a moment."""

__all__ = ["STORE", "TINY"]

STORE = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    "dataset.num_features=8",
)
TINY = (*STORE, "model.hidden=8", "sampler.fanouts=[5,3]", "num_threads=1")
