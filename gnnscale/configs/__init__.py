"""Hydra configurations that ship with gnnscale, one folder for each group."""
