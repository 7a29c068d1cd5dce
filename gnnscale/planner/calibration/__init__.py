"""Calibration: rates of this machine, measured by short runs of the stages' own code."""
