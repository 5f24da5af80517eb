"""The hardware values of the roofline: a GPU's peaks, and the host's launch costs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One GPU by its public datasheet, and how much of that is reached.

    ``tflops`` is the dense bf16 matmul peak (TFLOP/s, no sparsity), ``memory_bandwidth_gbps`` in GB/s (1e9),
    ``memory_gib`` what the driver reports. The efficiencies multiply peak and bandwidth. An eager step takes at
    least ``eager_layer_us`` of host time per layer (small launches); a graph replay adds ``graph_launch_us``.
    Between steps the host needs ``host_gap_us`` + ``host_per_row_us`` x rows + ``host_per_started_us`` x started.

    Raises:
        ValueError: a number that is not finite, a size that is not positive, an efficiency outside (0, 1].
    """

    name: str
    tflops: float
    memory_bandwidth_gbps: float
    memory_gib: float
    flops_efficiency: float = 1.0
    bandwidth_efficiency: float = 1.0
    eager_layer_us: float = 0.0
    graph_launch_us: float = 0.0
    host_gap_us: float = 0.0
    host_per_row_us: float = 0.0
    host_per_started_us: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "name" and (not isfinite(value) or value < 0):
                raise ValueError(f"{field.name} must be finite and not negative, got {value}")
        for name in ("tflops", "memory_bandwidth_gbps", "memory_gib", "flops_efficiency", "bandwidth_efficiency"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name} must be positive")
        if max(self.flops_efficiency, self.bandwidth_efficiency) > 1:
            raise ValueError("flops_efficiency and bandwidth_efficiency are fractions of the peak, at most 1")

    @property
    def flops_per_ns(self) -> float:
        return self.tflops * self.flops_efficiency * 1e3

    @property
    def bytes_per_ns(self) -> float:
        return self.memory_bandwidth_gbps * self.bandwidth_efficiency

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * GIB)

    def ideal(self) -> Hardware:
        """The same GPU at its datasheet peaks with a host that costs nothing: the floor of any step."""
        return replace(
            self,
            flops_efficiency=1.0,
            bandwidth_efficiency=1.0,
            eager_layer_us=0.0,
            graph_launch_us=0.0,
            host_gap_us=0.0,
            host_per_row_us=0.0,
            host_per_started_us=0.0,
        )
