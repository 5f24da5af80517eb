"""The device and the model that an engine would have, without loading it."""

from __future__ import annotations

import torch

from twinserve.real_backend.bench.peaks import measure_peaks
from twinserve.real_backend.bench.results import Probe
from twinserve.real_backend.device import find_device
from twinserve.real_backend.device_errors import clear_errors
from twinserve.real_backend.engine_config import EngineConfig
from twinserve.real_backend.engine_loader import find_model_config


def probe(wanted: EngineConfig) -> Probe:
    """Measures the device's peaks at the model's number type.

    Raises:
        EngineError: no such device or model, or too little memory.
    """
    device = find_device(wanted.options.device)
    model = find_model_config(wanted.model, wanted.scheduler.max_model_len)
    on_gpu = device.type == "cuda"
    with clear_errors("measuring its peaks"):
        peaks = measure_peaks(device, getattr(torch, model.dtype)) if on_gpu else None
    return Probe(
        device=torch.cuda.get_device_name(device) if on_gpu else "cpu",
        memory_gib=torch.cuda.get_device_properties(device).total_memory / (1 << 30) if on_gpu else None,
        torch=torch.__version__,
        cuda=torch.version.cuda if on_gpu else None,
        peaks=peaks,
        model=model,
    )
