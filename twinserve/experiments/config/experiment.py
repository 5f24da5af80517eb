"""One experiment as a YAML file: typed, strict, never changed after it was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from twinserve.experiments.config.cost_model import CostModelConfig
from twinserve.experiments.config.engine import EngineSection
from twinserve.experiments.metrics import MetricsConfig
from twinserve.experiments.settings.schema import NonNegativeInt, PositiveFloat, Section, Seed
from twinserve.experiments.workloads import WorkloadConfig
from twinserve.real_backend.attention.facts import AttentionBackendName

Name = Annotated[str, StringConstraints(pattern=r"^[^\n\r]+$")]


class ModelSection(Section):
    """Which model is served: ``name`` gives the shapes, ``path`` the folder of weights of a real run."""

    name: Name = "Qwen/Qwen3-8B"
    path: Name | None = None
    load_format: Literal["auto", "safetensors", "dummy"] = "auto"
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"


class SimSection(Section):
    """What a simulated run needs: where step times come from."""

    cost_model: CostModelConfig


class RealSection(Section):
    """What only a real run needs. ``gpu_memory_limit_gib`` holds the process to that much device memory."""

    attention_backend: AttentionBackendName = "auto"
    device: Name = "cuda"
    gpu_memory_limit_gib: PositiveFloat | None = None


class RecordSection(Section):
    """What a run leaves behind besides requests, steps and tokens; ``decisions`` keeps every plan."""

    decisions: bool = False


class ExperimentConfig(Section):
    """The whole file. ``sim`` and ``real`` may both be present, so that one file runs on either backend."""

    name: Name
    seed: Seed = 0
    repeat: NonNegativeInt = 0
    backend: Literal["sim", "real"] = "sim"
    model: ModelSection = ModelSection()
    engine: EngineSection = EngineSection()
    sim: SimSection | None = None
    real: RealSection = RealSection()
    workload: WorkloadConfig
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    record: RecordSection = RecordSection()

    @model_validator(mode="before")
    @classmethod
    def _tenants_get_a_strong_hash(cls, data: Any) -> Any:
        """Where cache salts separate tenants, block hashes must resist collisions; a hash that is given stays."""
        return _with_strong_hash(data) if isinstance(data, Mapping) and _has_salts(data.get("workload")) else data

    @model_validator(mode="after")
    def _backend_has_its_section(self) -> Self:
        if self.backend == "sim" and self.sim is None:
            raise ValueError("backend is sim but there is no `sim:` section; add sim.cost_model, or use --backend real")
        return self

    @property
    def prices_chosen_graphs(self) -> bool:
        """Whether a simulated run depends on the CUDA graphs that the real engine would choose by itself."""
        chosen = not self.engine.enforce_eager and self.engine.cuda_graph_sizes is None
        return chosen and self.sim is not None and self.sim.cost_model.kind == "roofline"


def _has_salts(workload: Any) -> bool:
    classes = workload.get("classes") if isinstance(workload, Mapping) else None
    return isinstance(classes, list | tuple) and any(
        isinstance(one, Mapping) and one.get("cache_salt") for one in classes
    )


def _with_strong_hash(data: Mapping[str, Any]) -> Any:
    engine = data.get("engine", {})
    if not isinstance(engine, Mapping) or "prefix_caching_hash_algo" in engine:
        return data
    return {**data, "engine": {**engine, "prefix_caching_hash_algo": "sha256"}}
