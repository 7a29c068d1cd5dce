"""Export of a run: predictions and embeddings in files, and weights for PyG and DGL."""
