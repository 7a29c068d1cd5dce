"""Search for the device plan of a run, by the performance model and by profiling."""
