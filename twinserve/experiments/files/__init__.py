"""Files and progress: atomic writes, Parquet, strict JSON."""
