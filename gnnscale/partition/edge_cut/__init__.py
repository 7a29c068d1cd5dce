"""Few edges between parts: Mt-KaHyPar, METIS, and what both need."""
