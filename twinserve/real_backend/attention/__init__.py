"""Attention over a paged KV cache: one interface, several kernels, chosen by device or by name."""

from twinserve.real_backend.attention.base import AttentionBackend, AttentionMetadata, AttentionShape
from twinserve.real_backend.attention.registry import make_attention_backend

__all__ = ["AttentionBackend", "AttentionMetadata", "AttentionShape", "make_attention_backend"]
