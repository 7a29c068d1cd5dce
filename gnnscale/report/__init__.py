"""Reports of runs: live progress, summaries, tables and pages."""
