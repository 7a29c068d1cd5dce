"""Pipeline of stages that run ahead of the trainer, and the training step after them."""
