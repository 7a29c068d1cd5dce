"""The border of files: bytes become checked arrays here, or a one-line error."""
