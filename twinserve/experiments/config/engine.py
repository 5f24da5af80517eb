"""The ``engine`` section: the scheduler's settings and policies, and how the step is run."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from twinserve.experiments.config.policies import PolicySection
from twinserve.experiments.settings.schema import Fraction, FromList, NonNegativeInt, PositiveInt, Section
from twinserve.sched_core.config import HashAlgorithm, SchedulerConfig


def _ascending(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if list(sizes) != sorted(set(sizes)):
        raise ValueError(f"got {list(sizes)}; should be ascending token counts without repeats")
    return sizes


GraphSizes = Annotated[tuple[PositiveInt, ...], FromList, AfterValidator(_ascending)]


class CudaGraphSizes(Section):
    """Token counts for which graphs exist: steps of single-token rows only, and steps of any shape."""

    decode: GraphSizes = ()
    mixed: GraphSizes = ()


class EngineSection(PolicySection):
    """Fields of ``twinserve.sched_core.config.SchedulerConfig`` by the same names, and what surrounds them.

    Each seam (``policy``, ``order``, ``victim``, ``budget``, ``admission``) has a built-in name, an import path, or a
    mapping of ``use`` (one of these) and the policy's parameters.
    ``num_gpu_blocks_override`` null takes the number of KV blocks from the calibration, the roofline's memory or,
    in a real run, the device. ``cuda_graph_sizes`` null means those of the calibration, or what the engine
    chooses by itself (a roofline prices the same choice; ``linear`` and ``replay`` assume no graphs).
    """

    block_size: PositiveInt = 16
    max_num_batched_tokens: PositiveInt = 2048
    max_num_seqs: PositiveInt = 128
    max_model_len: PositiveInt = 4096
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    prefix_caching_hash_algo: HashAlgorithm = "xxh3_128"
    long_prefill_token_threshold: NonNegativeInt = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: Fraction = 0.0
    max_head_bypass: NonNegativeInt = 0
    prefill_schedule_interval: PositiveInt = 1
    max_num_queued_reqs: PositiveInt | None = None

    num_gpu_blocks_override: PositiveInt | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    enforce_eager: bool = False
    cuda_graph_sizes: CudaGraphSizes | None = None

    @model_validator(mode="after")
    def _eager_has_no_graphs(self) -> Self:
        if self.enforce_eager and self.cuda_graph_sizes is not None:
            raise ValueError("enforce_eager is true but cuda_graph_sizes is given; keep one of them")
        return self

    def scheduler_fields(self) -> dict[str, object]:
        """The fields of ``SchedulerConfig`` except ``num_blocks``, which is not known before a backend is built."""
        names = SchedulerConfig.__dataclass_fields__.keys() - {"num_blocks"}
        return {name: value for name, value in self if name in names}
