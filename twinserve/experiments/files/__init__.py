"""Files of every kind: atomic writes, parquet, CSV, JSON, their names, and progress bars."""
