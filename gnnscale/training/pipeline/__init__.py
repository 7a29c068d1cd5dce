"""Stages that run ahead of the trainer, and which slice each of them works on."""
