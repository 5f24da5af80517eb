"""Writes the files of a validation: pictures, then validation.json."""

from __future__ import annotations

from pathlib import Path

from twinserve.experiments.files import strict_json
from twinserve.experiments.files.atomic import write_text
from twinserve.experiments.files.names import VALIDATION
from twinserve.experiments.metrics import request_latencies
from twinserve.experiments.metrics.window import measurement_window
from twinserve.experiments.plots.cdf import plot_cdfs
from twinserve.experiments.plots.error_bars import plot_error_split
from twinserve.experiments.plots.style import save
from twinserve.experiments.validation.figures import LATENCIES
from twinserve.experiments.validation.validate import Validation
from twinserve.experiments.validation.validation_table import figure_label

CDFS, SPLIT = "validate.png", "error_split.png"


def write_validation(validation: Validation, out: Path) -> list[Path]:
    """Write CDFs of real and simulated latencies, the split errors and all numbers; returns their paths.

    Raises:
        ConfigError: ``out`` cannot be written.
    """
    title = f"{validation.run.config.name}, {validation.cost_model}"
    paths = [_draw_latencies(validation, title, out / CDFS), _draw_errors(validation, title, out / SPLIT)]
    write_text(out / VALIDATION, strict_json.dumps(validation.as_json()))
    return [*paths, out / VALIDATION]


def _draw_latencies(validation: Validation, title: str, path: Path) -> Path:
    config = validation.run.config.metrics
    records = {"real": validation.run.record, "simulated": validation.simulated}
    windows = {label: measurement_window(record.requests, config) for label, record in records.items()}
    found = {label: request_latencies(record, windows[label].measured) for label, record in records.items()}
    return save(plot_cdfs(found, LATENCIES, title), path)


def _draw_errors(validation: Validation, title: str, path: Path) -> Path:
    shown = {figure_label(name).split(" (")[0]: validation.figures[name] for name in validation.errors}
    totals = {label: figure.error_percent for label, figure in shown.items()}
    parts = {
        "step time": {label: figure.step_time_percent for label, figure in shown.items()},
        "host gap": {label: figure.host_gap_percent for label, figure in shown.items()},
        "feedback": {label: figure.feedback_percent for label, figure in shown.items()},
    }
    return save(plot_error_split(totals, parts, title), path)
