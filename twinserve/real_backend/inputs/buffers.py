"""A step's inputs on the host (pinned) and on the device, at addresses that never change.

What the host says lies in one piece of memory, so that a step costs one copy to the device and CUDA graphs can be
replayed on whatever the last copy brought. It says little: who is in the batch and how far they are. The rest is
worked out on the device (``expansion.py``), since the device waits for whatever the host does before a launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from twinserve.real_backend.inputs.batch import FlatBatch
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import CaptureSizes, Dispatch, GraphMode

Fields: TypeAlias = dict[str, tuple[torch.dtype, tuple[int, ...]]]

_ALIGNMENT = 128  # bytes; what vector loads and attention kernels want at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The largest step (tokens, rows), the requests in the batch (slots), and the blocks of the longest."""

    max_tokens: int
    max_rows: int
    max_blocks: int
    num_slots: int

    @classmethod
    def of(cls, scheduler: SchedulerConfig, sizes: CaptureSizes) -> Capacity:
        """What any step of the scheduler's needs, padded to any of the graphs of these sizes."""
        largest_step = min(scheduler.max_num_batched_tokens, scheduler.max_num_seqs * scheduler.max_model_len)
        return cls(
            max_tokens=max((largest_step, *sizes.decode, *sizes.mixed)),
            max_rows=max((scheduler.max_num_seqs, *sizes.decode)),
            max_blocks=-(-scheduler.max_model_len // scheduler.block_size),
            num_slots=scheduler.max_num_seqs,
        )


class StepBuffers:
    """``host`` has numpy views and ``device`` tensors of the fields; on the CPU both are the same memory.

    Uploaded for every step. Per token: input_ids (int64). Per row: row_slots, num_computed, cu_seqlens_q (one more);
    per sampling row: sample_rows; all int32. Per slot of ``InputBatch``, and one more for rows without a request:
    block_ids (int32 [slots + 1, max blocks]), temperature, top_p (float32), top_k (int32), seed (int64).

    On the device only. Per token: positions, slot_mapping (int64). Per row: cu_seqlens_k (one more), seqused_k,
    block_table (int32). Per sampling row: logits_tokens, sample_position, row_seed (int64), row_temperature, row_top_p
    (float32), row_top_k (int32).

    ``filler_block`` is the page that rows without a request point to; it also fills the end of every block table.
    """

    def __init__(self, capacity: Capacity, device: torch.device, filler_block: int) -> None:
        self.capacity = capacity
        self.filler_block = filler_block
        uploaded, derived = _uploaded(capacity), _derived(capacity)
        self._host_memory = torch.zeros(_room(uploaded), dtype=torch.uint8, pin_memory=device.type == "cuda")
        on_host = device.type == "cpu"
        self._device_memory = self._host_memory if on_host else torch.zeros_like(self._host_memory, device=device)
        self.device: dict[str, torch.Tensor] = _carve(self._device_memory, uploaded)
        self.device |= _carve(torch.zeros(_room(derived), dtype=torch.uint8, device=device), derived)
        host_tensors = _carve(self._host_memory, uploaded)
        self.host: dict[str, NDArray[Any]] = {name: tensor.numpy() for name, tensor in host_tensors.items()}
        self.host["block_ids"].fill(filler_block)
        # Rows without a request sample from a truncated distribution, which costs most.
        self.host["temperature"][self.filler_slot] = 1.0
        self.host["top_p"][self.filler_slot] = 0.5
        self.host["top_k"][self.filler_slot] = 8

    @property
    def filler_slot(self) -> int:
        """The slot of rows without a request."""
        return self.capacity.num_slots

    def fill(self, batch: FlatBatch, choice: Dispatch) -> None:
        """Writes the step's rows and pads them to the chosen graph; the last upload must have ended."""
        host, count = self.host, batch.num_rows
        host["input_ids"][: batch.num_tokens] = batch.input_ids
        host["input_ids"][batch.num_tokens : choice.num_padded_tokens] = 0
        host["row_slots"][:count] = batch.row_slots
        host["num_computed"][:count] = batch.num_computed
        host["cu_seqlens_q"][: count + 1] = batch.cu_seqlens_q
        host["sample_rows"][: len(batch.sample_rows)] = batch.sample_rows
        if choice.mode is GraphMode.DECODE:
            self._pad_rows(batch, choice.num_padded_tokens, tokens_per_row=1)
        else:
            self._pad_rows(batch, self.capacity.max_rows, tokens_per_row=0)

    def upload(self) -> None:
        """Starts the one copy to the device."""
        if self._device_memory is not self._host_memory:
            self._device_memory.copy_(self._host_memory, non_blocking=True)

    def _pad_rows(self, batch: FlatBatch, num_padded: int, tokens_per_row: int) -> None:
        """Rows that see one key, on the filler page; they own the padding tokens of a decode graph."""
        count = batch.num_rows
        self.host["row_slots"][count:num_padded] = self.filler_slot
        self.host["num_computed"][count:num_padded] = 1 - tokens_per_row
        ends = batch.num_tokens + tokens_per_row * np.arange(1, num_padded - count + 1)
        self.host["cu_seqlens_q"][count + 1 : num_padded + 1] = ends


def _uploaded(capacity: Capacity) -> Fields:
    rows, slots = (capacity.max_rows,), (capacity.num_slots + 1,)
    return {
        "input_ids": (torch.int64, (capacity.max_tokens,)),
        "row_slots": (torch.int32, rows),
        "num_computed": (torch.int32, rows),
        "cu_seqlens_q": (torch.int32, (capacity.max_rows + 1,)),
        "sample_rows": (torch.int32, rows),
        "block_ids": (torch.int32, (capacity.num_slots + 1, capacity.max_blocks)),
        "temperature": (torch.float32, slots),
        "top_p": (torch.float32, slots),
        "top_k": (torch.int32, slots),
        "seed": (torch.int64, slots),
    }


def _derived(capacity: Capacity) -> Fields:
    tokens, rows = (capacity.max_tokens,), (capacity.max_rows,)
    return {
        "positions": (torch.int64, tokens),
        "slot_mapping": (torch.int64, tokens),
        "cu_seqlens_k": (torch.int32, (capacity.max_rows + 1,)),
        "seqused_k": (torch.int32, rows),
        "block_table": (torch.int32, (capacity.max_rows, capacity.max_blocks)),
        "logits_tokens": (torch.int64, rows),
        "sample_position": (torch.int64, rows),
        "row_seed": (torch.int64, rows),
        "row_temperature": (torch.float32, rows),
        "row_top_p": (torch.float32, rows),
        "row_top_k": (torch.int32, rows),
    }


def _room(fields: Fields) -> int:
    return sum(_aligned(prod(shape) * dtype.itemsize) for dtype, shape in fields.values())


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _carve(memory: torch.Tensor, fields: Fields) -> dict[str, torch.Tensor]:
    """Views of the fields, one after the other, each aligned."""
    views, offset = {}, 0
    for name, (dtype, shape) in fields.items():
        num_bytes = prod(shape) * dtype.itemsize
        views[name] = memory[offset : offset + num_bytes].view(dtype).view(shape)
        offset += _aligned(num_bytes)
    return views
