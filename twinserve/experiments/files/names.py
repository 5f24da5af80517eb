"""The file names of run, profile, sweep and validation folders; no other module spells them."""

from __future__ import annotations

CONFIG = "config.yaml"
"""The resolved configuration of a run or profile."""
MANIFEST = "manifest.json"
"""The circumstances of a run or profile: date, host, versions, inputs."""
RESULT = "result.json"
"""The figures of a finished run; written last."""
REQUESTS, STEPS, TOKENS = "requests.parquet", "steps.parquet", "tokens.parquet"
"""The record of a run."""
DECISIONS = "decisions.parquet"
"""The decision log of a run with ``record.decisions``."""

PROFILE = "profile.parquet"
"""The measured steps of a complete profile; written last."""
PROFILE_PICTURE = "profile.png"

SUMMARY = "summary.csv"
"""One row per finished point of a sweep."""
SEED_SUMMARY = "summary_over_seeds.csv"
"""One row per group of points that differ in the seed only."""
FAILURES = "failures.csv"
"""One row per point that failed."""

VALIDATION = "validation.json"
"""The validation of one run."""
VALIDATION_SUMMARY = "validation.csv"
"""One row per validated run of a folder."""
BENCHMARK, BENCHMARK_PICTURE = "bench-engine.json", "bench-engine.png"
