"""Link prediction: which edges are held out, and what a run makes of the others."""
