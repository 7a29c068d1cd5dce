"""HyScale-GNN's performance model: equations, workloads, and predictions for a plan."""
