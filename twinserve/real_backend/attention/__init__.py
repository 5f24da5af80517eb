"""Attention over a paged KV cache: one interface, several kernels, chosen by device or by name."""
