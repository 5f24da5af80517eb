"""Many experiments from one base: points, executors, summaries."""
