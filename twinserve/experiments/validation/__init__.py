"""A real run beside its simulation: the same decisions, and where the remaining errors come from."""
