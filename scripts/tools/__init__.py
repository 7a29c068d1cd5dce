"""Tools of the developer: docs made from docstrings, checks of native code and of HLS."""
