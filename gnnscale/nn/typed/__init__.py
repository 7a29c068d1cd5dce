"""Graph neural networks over graphs with types of vertices and edges."""
