"""Dynamic resource management (HyScale-GNN, section IV-A)."""
