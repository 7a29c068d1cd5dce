"""Edge-cut partitioners: Mt-KaHyPar, METIS, and the multilevel scheme around them."""
