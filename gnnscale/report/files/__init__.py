"""Files of a run directory: summary, steps, trace."""
