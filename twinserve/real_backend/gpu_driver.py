"""The GPU driver's version, which torch does not tell."""

from __future__ import annotations

import subprocess

_QUERY = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def driver_version() -> str | None:
    """As nvidia-smi prints it ("580.65.06"); None where it cannot be asked."""
    try:
        answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = answer.stdout.split()
    return lines[0] if lines else None
