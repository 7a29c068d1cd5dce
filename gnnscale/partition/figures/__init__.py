"""What a partition is like, and what it took: cuts, balances, replicas, memory."""
