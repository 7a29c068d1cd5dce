"""What a run learnt, taken home: predictions and embeddings in files, weights for peers."""
