"""Legion's unified cache of adjacency lists and feature rows (Sun et al., USENIX ATC 2023)."""
