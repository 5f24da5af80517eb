"""A request before, inside and between batches."""
