"""P3's execution: the first layer is split among devices by columns of the features."""
