"""Chooses the cost model to validate: the given calibration, or the one that the configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from twinserve.experiments.config.calibration import read_calibration
from twinserve.experiments.config.catalog import catalog_file
from twinserve.experiments.config.cost_model import CalibrationConfig, CostModelConfig, build_cost_model
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.validation.recorded import RecordedRun
from twinserve.sim_backend.cost_model import SplitCostModel


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSource:
    """Builds cost models for recorded runs. ``calibration`` is a name or path; None means each run's own choice."""

    calibration: str | None = None

    @property
    def label(self) -> str:
        """The name of the source for a whole folder of runs."""
        return "own-cost-model" if self.calibration is None else _called(self.calibration)

    def check(self) -> None:
        """Read the calibration, if one was given.

        Raises:
            ConfigError: it is missing or wrong.
        """
        if self.calibration is not None:
            with self._errors_name_option():
                read_calibration(catalog_file("calibrations", self.calibration, Path.cwd()))

    def build(self, run: RecordedRun) -> SplitCostModel:
        """A fresh cost model for ``run``.

        Raises:
            ConfigError: there is none, or one that takes its times from a recording.
        """
        config, base_dir = self._config(run), self._base_dir(run)
        with self._errors_name_option(), run.experiment.errors_name_source():
            model = build_cost_model(config, model=run.config.model, base_dir=base_dir)
        if not isinstance(model, SplitCostModel):
            message = f"{config.kind} predicts no step times; give --calibration FILE"
            raise ConfigError(message, file=run.experiment.source, key="sim.cost_model.kind")
        return model

    def name(self, run: RecordedRun) -> str:
        """The name of the cost model: the calibration's file, or the kind and GPU."""
        config = self._config(run)
        if isinstance(config, CalibrationConfig):
            return _called(config.file)
        return "-".join([config.kind, *([_called(config.hardware)] if config.kind == "roofline" else [])])

    def misfits(self, run: RecordedRun) -> list[str]:
        """In what the calibrated engine is another one than the run's; empty for other cost models."""
        config = self._config(run)
        if not isinstance(config, CalibrationConfig):
            return []
        calibration = read_calibration(catalog_file("calibrations", config.file, self._base_dir(run)))
        pairs = {
            "gpu": (calibration.gpu, run.manifest.get("device")),
            "model": (calibration.model, run.config.model.name),
            "dtype": (calibration.dtype, run.manifest.get("dtype")),
            "attention_backend": (calibration.attention_backend, run.manifest.get("attention_backend")),
        }
        return [
            f"the calibration's {key} is {ours}, the run's {theirs}"
            for key, (ours, theirs) in pairs.items()
            if theirs is not None and _plain(ours) != _plain(theirs)
        ]

    def _config(self, run: RecordedRun) -> CostModelConfig:
        if self.calibration is not None:
            return CalibrationConfig(kind="calibration", file=self.calibration)
        if run.config.sim is None:
            message = "is missing; give --calibration FILE, or --set sim.cost_model.kind=roofline and so on"
            raise ConfigError(message, file=run.experiment.source, key="sim.cost_model")
        return run.config.sim.cost_model

    def _base_dir(self, run: RecordedRun) -> Path:
        return run.experiment.base_dir if self.calibration is None else Path.cwd()

    @contextmanager
    def _errors_name_option(self) -> Iterator[None]:
        """Names the option in errors about the calibration."""
        try:
            yield
        except ConfigError as error:
            if error.file is None and self.calibration is not None:
                raise ConfigError(error.message, file=f"--calibration {self.calibration}") from error
            raise


def _plain(name: object) -> str:
    """ "NVIDIA H200" and "h200" are the same GPU, "Qwen/Qwen3-8B" and "Qwen3-8B" the same model."""
    return str(name).rsplit("/", 1)[-1].lower().removeprefix("nvidia").strip().replace(" ", "-")


def _called(file: str) -> str:
    """A file's name without .yaml; "qwen3-0.6b" has a point of its own."""
    return Path(file).name.removesuffix(".yaml").removesuffix(".yml")
