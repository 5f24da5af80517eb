"""The device and model that a benchmark measures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twinserve.experiments.backends.real import check_real, probe_engine
from twinserve.experiments.bench.device_limits import measured_hardware, write_catalog_files
from twinserve.experiments.bench.published import is_comparable
from twinserve.experiments.config.load import Experiment
from twinserve.run_core.model_config import ModelConfig
from twinserve.sim_backend.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """``facts`` of the device, measured ``peaks`` and the ``hardware`` made of them (None on the CPU), the model.

    ``comparable``: published figures are for this device, model and workload.
    """

    facts: dict[str, Any]
    peaks: dict[str, float] | None
    hardware: Hardware | None
    model: ModelConfig
    comparable: bool


def probe_device(experiment: Experiment, out: Path) -> Device:
    """Measures the device; writes hardware.yaml and model.yaml below ``out``.

    Raises:
        ConfigError: there is no such device or model, or the folder cannot be written.
    """
    with experiment.errors_name_source():
        check_real(experiment)
        found = probe_engine(experiment)
    peaks = None if found.peaks is None else asdict(found.peaks)
    hardware = None
    if peaks is not None and found.memory_gib is not None:
        hardware = measured_hardware(found.device, found.memory_gib, peaks["matmul_tflops"], peaks["copy_tbps"])
        write_catalog_files(out, hardware, found.model)
    facts = {"name": found.device, "memory_gib": found.memory_gib, "torch": found.torch, "cuda": found.cuda}
    return Device(
        facts=facts,
        peaks=peaks,
        hardware=hardware,
        model=found.model,
        comparable=is_comparable(experiment.config, found.device, found.model.name),
    )
