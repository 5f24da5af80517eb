"""A step's inputs on the host (pinned) and on the device, at addresses that never change.

All fields lie in one piece of memory, so that a step costs one copy to the device and CUDA graphs can be replayed
on whatever the last copy brought.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from real_backend.batch import FlatBatch
from real_backend.sampling_table import SamplingParameters, SamplingRows
from real_backend.table_rows import ShownTables
from sched_core.dispatch import Dispatch, GraphMode

_ALIGNMENT = 128  # bytes; what vector loads and attention kernels want at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The largest step: tokens, rows, and blocks in a row's table."""

    max_tokens: int
    max_rows: int
    max_blocks: int


class StepBuffers:
    """``host`` has numpy views and ``device`` tensors of the same fields; on the CPU both are the same memory.

    Per token: input_ids, positions, slot_mapping (int64). Per row: cu_seqlens_q, cu_seqlens_k (one more), seqused_k,
    block_table (int32). Per sampling row: logits_tokens, seed, sample_position (int64), temperature, top_p
    (float32), top_k (int32). ``filler_block`` is the page that padding rows point to.
    """

    def __init__(self, capacity: Capacity, device: torch.device, filler_block: int) -> None:
        self.capacity = capacity
        self.filler_block = filler_block
        fields = _fields(capacity)
        num_bytes = sum(_room(dtype, shape) for dtype, shape in fields.values())
        self._host_memory = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        on_host = device.type == "cpu"
        self._device_memory = self._host_memory if on_host else torch.zeros_like(self._host_memory, device=device)
        host_tensors = _carve(self._host_memory, fields)
        self.device: dict[str, torch.Tensor] = _carve(self._device_memory, fields)
        self.host: dict[str, NDArray[Any]] = {name: tensor.numpy() for name, tensor in host_tensors.items()}
        self.host["block_table"].fill(filler_block)
        self._shown_tables = ShownTables(self.host["block_table"], filler_block)
        self._shown_parameters: SamplingParameters | None = None

    def fill(self, batch: FlatBatch, sampling: SamplingRows, choice: Dispatch) -> None:
        """Writes the host fields and pads them to the chosen graph; the last upload must have ended."""
        self._fill_tokens(batch, choice.num_padded_tokens)
        self._fill_rows(batch)
        self._fill_sampling(batch, sampling)
        if choice.mode is GraphMode.DECODE:
            self._pad_rows(batch, choice.num_padded_tokens, tokens_per_row=1)
        elif choice.mode is GraphMode.MIXED:
            self._pad_rows(batch, self.capacity.max_rows, tokens_per_row=0)

    def upload(self) -> None:
        """Starts the one copy to the device."""
        if self._device_memory is not self._host_memory:
            self._device_memory.copy_(self._host_memory, non_blocking=True)

    def _fill_tokens(self, batch: FlatBatch, num_padded: int) -> None:
        count, padding = batch.num_tokens, slice(batch.num_tokens, num_padded)
        for name, values in (("input_ids", batch.input_ids), ("positions", batch.positions)):
            self.host[name][:count] = values
            self.host[name][padding] = 0
        self.host["slot_mapping"][:count] = batch.slot_mapping
        self.host["slot_mapping"][padding] = -1

    def _fill_rows(self, batch: FlatBatch) -> None:
        count = batch.num_rows
        self.host["cu_seqlens_q"][: count + 1] = batch.cu_seqlens_q
        self.host["cu_seqlens_k"][: count + 1] = batch.cu_seqlens_k
        self.host["seqused_k"][:count] = batch.context_lens
        self._shown_tables.show(batch.table_rows)

    def _fill_sampling(self, batch: FlatBatch, sampling: SamplingRows) -> None:
        count = len(batch.logits_tokens)
        self.host["logits_tokens"][:count] = batch.logits_tokens
        self.host["sample_position"][:count] = sampling.sample_position
        if sampling.parameters is not self._shown_parameters:
            self._shown_parameters = sampling.parameters
            for name, values in sampling.parameters.columns().items():
                self.host[name][:count] = values

    def _pad_rows(self, batch: FlatBatch, num_padded: int, tokens_per_row: int) -> None:
        """Rows that see one key, on the filler page; they own the padding tokens of a decode graph."""
        count = batch.num_rows
        extra = np.arange(1, num_padded - count + 1)
        ends = slice(count + 1, num_padded + 1)
        self.host["cu_seqlens_q"][ends] = batch.num_tokens + tokens_per_row * extra
        self.host["cu_seqlens_k"][ends] = batch.cu_seqlens_k[-1] + extra
        self.host["seqused_k"][count:num_padded] = 1
        self._shown_tables.hide(count, num_padded)


def _fields(capacity: Capacity) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    tokens, rows = (capacity.max_tokens,), (capacity.max_rows,)
    ends = (capacity.max_rows + 1,)
    return {
        "input_ids": (torch.int64, tokens),
        "positions": (torch.int64, tokens),
        "slot_mapping": (torch.int64, tokens),
        "cu_seqlens_q": (torch.int32, ends),
        "cu_seqlens_k": (torch.int32, ends),
        "seqused_k": (torch.int32, rows),
        "block_table": (torch.int32, (capacity.max_rows, capacity.max_blocks)),
        "logits_tokens": (torch.int64, rows),
        "seed": (torch.int64, rows),
        "sample_position": (torch.int64, rows),
        "temperature": (torch.float32, rows),
        "top_p": (torch.float32, rows),
        "top_k": (torch.int32, rows),
    }


def _room(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    return -(-prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


def _carve(memory: torch.Tensor, fields: dict[str, tuple[torch.dtype, tuple[int, ...]]]) -> dict[str, torch.Tensor]:
    """Views of the fields, one after the other, each aligned."""
    views, offset = {}, 0
    for name, (dtype, shape) in fields.items():
        num_bytes = prod(shape) * dtype.itemsize
        views[name] = memory[offset : offset + num_bytes].view(dtype).view(shape)
        offset += _room(dtype, shape)
    return views
