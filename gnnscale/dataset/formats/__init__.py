"""The border of files: bytes become checked arrays here, or one line says why not."""
