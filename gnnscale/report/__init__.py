"""What a run shows and writes: live progress, summaries, tables."""
