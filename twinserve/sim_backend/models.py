"""Shapes of dense decoder models, and the sizes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A dense transformer decoder with grouped-query attention and a gated MLP; field names as in its config.json.

    ``dtype_bytes`` is the size of a weight and of a cached key or value. ``qk_norm`` is Qwen3's RMSNorm over
    ``head_dim`` of queries and keys.

    Raises:
        ValueError: a size below one, or query heads that do not divide into the key-value heads.
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
    dtype_bytes: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, (str, bool)) and value < 1:
                raise ValueError(f"{field.name} must be at least 1, got {value}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")

    @property
    def layer_gemms(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of one layer's matrix products: qkv, attention output, gate and up, down."""
        query = self.num_attention_heads * self.head_dim
        key_value = 2 * self.num_key_value_heads * self.head_dim
        return (
            (self.hidden_size, query + key_value),
            (query, self.hidden_size),
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
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * self.dtype_bytes

    @property
    def attention_flops_per_pair(self) -> int:
        """Floating-point operations of all layers for one query-key pair (scores and weighted values)."""
        return 4 * self.num_hidden_layers * self.num_attention_heads * self.head_dim
