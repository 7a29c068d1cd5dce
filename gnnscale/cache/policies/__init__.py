"""Cache policies: the published designs, and the bounds that look-ahead gives."""
