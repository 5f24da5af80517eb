"""A dense decoder model, for both backends: its architecture, and the sizes that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

DTYPE_BYTES: Mapping[str, int] = MappingProxyType({"float32": 4, "float16": 2, "bfloat16": 2})

_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
)
SIMULATED_FIELDS = (*_SIZES, "tie_word_embeddings", "qk_norm")
"""What a step's cost depends on, besides the type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3RopeScaling:
    """Llama 3.1's stretched rotary frequencies; names as in its config.json."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A transformer decoder with grouped-query attention and a gated (SwiGLU) MLP; names as in its config.json.

    ``qk_norm`` is Qwen3's RMSNorm over ``head_dim`` of queries and keys, before the rotary embedding; Llama has none.
    ``dtype`` is the type of weights and of cached keys and values. ``eos_token_ids`` may be empty. A simulation needs
    SIMULATED_FIELDS only.

    Raises:
        ValueError: a size that is no whole number from 1, or query heads that do not divide into the key-value heads.
    """

    name: str
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool = False
    qk_norm: bool = False
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    rope_scaling: Llama3RopeScaling | None = None
    max_position_embeddings: int = 40_960
    eos_token_ids: tuple[int, ...] = ()
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in (*_SIZES, "max_position_embeddings"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}; should be a whole number, 1 or more")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads is no multiple of num_key_value_heads")

    @property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def q_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of K, and of V, per token and layer."""
        return self.num_key_value_heads * self.head_dim

    @property
    def layer_gemms(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of one layer's matrix products: qkv, attention output, gate and up, down."""
        return (
            (self.hidden_size, self.q_size + 2 * self.kv_size),
            (self.q_size, self.hidden_size),
            (self.hidden_size, 2 * self.intermediate_size),
            (self.intermediate_size, self.hidden_size),
        )

    @property
    def head_parameters(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        layer = sum(inputs * outputs for inputs, outputs in self.layer_gemms) + norms
        embeddings = self.head_parameters * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * layer + embeddings + self.hidden_size

    @property
    def weight_bytes(self) -> int:
        return self.num_parameters * self.dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.num_hidden_layers * self.kv_size * self.dtype_bytes

    @property
    def attention_flops_per_pair(self) -> int:
        """Floating-point operations of all layers for one query-key pair (scores and weighted values)."""
        return 4 * self.num_hidden_layers * self.num_attention_heads * self.head_dim
