"""The decoder: shapes, weights, layers, forward pass."""
