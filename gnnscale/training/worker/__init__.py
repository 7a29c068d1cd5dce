"""Parts of one training worker: inputs, model, device, schedule, and progress of the run."""
