"""An experiment on the real engine; the only place that imports what needs torch, and only when it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twinserve.experiments.backends.backend_run import BLOCKS_KEY, BackendRun, Blocks, Progress
from twinserve.experiments.backends.real_config import notes_on_model, real_engine_config
from twinserve.experiments.backends.scheduler import engine_policies
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError, DeviceError, RunError
from twinserve.experiments.workloads import Workload
from twinserve.real_backend.attention.facts import ATTENTION_BACKENDS, refusal_line
from twinserve.real_backend.engine_config import EngineConfig
from twinserve.real_backend.errors import EngineError
from twinserve.run_core.record import Recorder
from twinserve.run_core.session import ProgressListener

if TYPE_CHECKING:
    from twinserve.real_backend.bench.results import Probe, StepTiming
    from twinserve.real_backend.profiling.profile import Profile


def check_real(experiment: Experiment) -> None:
    """What can be known of a real run without its device.

    Raises:
        ConfigError: no weights are named, the attention backend cannot serve, or a policy cannot be loaded.
    """
    model = experiment.config.model
    if model.path is None and model.load_format != "dummy":
        message = "is missing; give a model folder, or model.load_format: dummy for random weights"
        raise ConfigError(message, key="model.path")
    _check_attention(experiment)
    engine_policies(experiment)


def run_real(
    experiment: Experiment, workload: Workload, check: bool, on_progress: ProgressListener | None
) -> BackendRun:
    engine = experiment.config.engine
    with _as_config_errors():
        from twinserve.real_backend.build import run_engine

        run = run_engine(
            real_engine_config(experiment),
            policies=engine_policies(experiment),
            source=workload.traffic(),
            recorder=Recorder(keep_plans=experiment.config.record.decisions),
            output_lens=workload.output_lens,
            check=check,
            on_progress=on_progress,
        )
    source = "device" if engine.num_gpu_blocks_override is None else BLOCKS_KEY
    blocks = Blocks(count=run.num_blocks, source=source)
    return BackendRun.of(run.outcome, blocks, facts=run.manifest, warnings=notes_on_model(experiment, run.model))


def probe_engine(experiment: Experiment) -> Probe:
    """The device with its measured peaks, and the model.

    Raises:
        ConfigError: there is no such device or model; DeviceError when no setting is to blame.
    """
    with _as_config_errors():
        from twinserve.real_backend.build import probe

        return probe(real_engine_config(experiment))


def time_engine_steps(
    experiment: Experiment, steps: Mapping[str, Sequence[tuple[int, int]]], repeats: int, on_progress: Progress
) -> tuple[list[StepTiming], dict[str, Any]]:
    """Timings of ``steps``, each a list of rows (num_computed, num_new), by name, and facts of the engine.

    Raises:
        ConfigError: a setting is wrong; DeviceError when none is to blame.
    """
    with _as_config_errors():
        from twinserve.real_backend.build import measure_steps

        return measure_steps(real_engine_config(experiment), steps, repeats=repeats, on_progress=on_progress)


@contextmanager
def profiled_engine(
    experiment: Experiment, *, num_blocks: int | None, num_visits: int, density: float
) -> Iterator[Profile]:
    """The real engine, ready to be profiled; ``num_blocks`` overrides the pool's size.

    Raises:
        ConfigError: something the engine needs is missing or wrong.
        RunError: the engine failed while it was measured.
    """
    with _as_config_errors():
        from twinserve.real_backend.build import load_profile

        profile = load_profile(
            _with_blocks(real_engine_config(experiment), num_blocks),
            make_policies=lambda: engine_policies(experiment),
            seed=experiment.config.seed,
            num_visits=num_visits,
            density=density,
        )
    try:
        yield profile
    except EngineError as error:
        raise RunError(f"{error.message}; what was measured stays", key=error.key) from error


@contextmanager
def _as_config_errors() -> Iterator[None]:
    """What the engine raises, as errors of the experiment; DeviceError when no setting is to blame."""
    try:
        yield
    except ImportError as error:
        message = f"the real backend cannot start ({error}); pip install 'twinserve[real]', or use --backend sim"
        raise ConfigError(message, key="backend") from error
    except EngineError as error:
        kind = DeviceError if error.key is None else ConfigError
        raise kind(error.message, key=error.key) from error


def _check_attention(experiment: Experiment) -> None:
    """A backend that was asked for by name must fit the settings; ``auto`` is seen on the device."""
    config = experiment.config
    name = config.real.attention_backend
    if name == "auto":
        return
    reason = ATTENTION_BACKENDS[name].refusal(
        device=config.real.device, dtype=config.model.dtype, block_size=config.engine.block_size
    )
    if reason is not None:
        raise ConfigError(refusal_line(name, reason), key="real.attention_backend")


def _with_blocks(wanted: EngineConfig, num_blocks: int | None) -> EngineConfig:
    if num_blocks is None:
        return wanted
    return wanted._replace(options=replace(wanted.options, num_gpu_blocks_override=num_blocks))
