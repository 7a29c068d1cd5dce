"""Graph convolution layers."""
