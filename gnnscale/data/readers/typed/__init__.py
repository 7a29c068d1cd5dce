"""Tables by type of vertices and edges."""
