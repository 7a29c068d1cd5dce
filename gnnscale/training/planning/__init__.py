"""The device plan that a run begins with: searched by the model, profiled by all workers."""
