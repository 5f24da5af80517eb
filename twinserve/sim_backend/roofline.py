"""The roofline cost model: each part of a step takes the longer of its memory traffic and its arithmetic."""

from __future__ import annotations

from twinserve.run_core.model_config import ModelConfig
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.hardware import Hardware
from twinserve.sim_backend.units import NS_PER_US


class RooflineCostModel:
    """The roofline of one model on one GPU (Williams et al., 2009), part by part.

    Parts are the matrix products of the layers (weights once, activations per token), decode attention (every
    cached key and value once), prefill attention (query-key pairs) and the head (sampled rows only); they run one
    after another. Pointwise kernels are not counted: a ``Hardware`` efficiency below one has to cover them.
    """

    __slots__ = ("_gemms", "_hardware", "_head", "_model")

    def __init__(self, model: ModelConfig, hardware: Hardware) -> None:
        self._model = model
        self._hardware = hardware
        self._gemms = [
            _gemm(inputs, outputs, model.dtype_bytes, hardware, model.num_hidden_layers)
            for inputs, outputs in model.layer_gemms
        ]
        self._head = _gemm(model.hidden_size, model.vocab_size, model.dtype_bytes, hardware, 1)

    def step_ns(self, features: StepFeatures, now: int) -> int:  # noqa: ARG002 - the protocol's signature
        device = self.dense_ns(features.num_padded_tokens)
        device += self.decode_attention_ns(features.decode_context)
        device += self.prefill_attention_ns(features.prefill_pairs, features.prefill_context)
        device += self.head_ns(features.num_samples)
        return max(round(self._launched_ns(device, features.graph_mode) + self.host_gap_ns(features)), 1)

    def wake_ns(self, now: int) -> int:
        return now

    def dense_ns(self, tokens: int) -> float:
        """All layers' matrix products for ``tokens`` tokens."""
        return sum(max(weights + moved * tokens, computed * tokens) for weights, moved, computed in self._gemms)

    def decode_attention_ns(self, context: int) -> float:
        """Attention of decode rows over ``context`` cached tokens in total."""
        return self._attention_ns(context, context)

    def prefill_attention_ns(self, pairs: int, context: int) -> float:
        """Attention of prefill rows: ``pairs`` query-key pairs over ``context`` keys in total."""
        return self._attention_ns(pairs, context)

    def head_ns(self, rows: int) -> float:
        """The output projection for ``rows`` sampled rows."""
        weights, moved, computed = self._head
        return max(weights + moved * rows, computed * rows) if rows else 0.0

    def _attention_ns(self, pairs: int, context: int) -> float:
        moved = context * self._model.kv_bytes_per_token / self._hardware.bytes_per_ns
        computed = pairs * self._model.attention_flops_per_pair / self._hardware.flops_per_ns
        return max(moved, computed)

    def _launched_ns(self, device: float, mode: GraphMode) -> float:
        """An eager step cannot end before its kernels are launched; a graph is one launch before the device works."""
        if mode is GraphMode.EAGER:
            return max(device, self._hardware.eager_layer_us * self._model.num_hidden_layers * NS_PER_US)
        return device + self._hardware.graph_launch_us * NS_PER_US

    def host_gap_ns(self, features: StepFeatures) -> float:
        """The part of ``step_ns`` in which the device is idle."""
        hardware = self._hardware
        per_row = hardware.host_per_row_us * features.num_rows
        per_started = hardware.host_per_started_us * features.num_started
        return (hardware.host_gap_us + per_row + per_started) * NS_PER_US


def _gemm(inputs: int, outputs: int, dtype_bytes: int, hardware: Hardware, times: int) -> tuple[float, float, float]:
    """(ns of weight traffic, ns of activation traffic per token, ns of arithmetic per token) of ``times`` products."""
    weights = inputs * outputs * dtype_bytes / hardware.bytes_per_ns
    moved = (inputs + outputs) * dtype_bytes / hardware.bytes_per_ns
    computed = 2 * inputs * outputs / hardware.flops_per_ns
    return times * weights, times * moved, times * computed
