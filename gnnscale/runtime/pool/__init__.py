"""One pool of rows for the workers of a machine, planned and read by one of them."""
