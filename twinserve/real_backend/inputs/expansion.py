"""From what the host says of each row to what the kernels want of each token, on the device."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def expand_rows(fields: Mapping[str, torch.Tensor], num_rows: int, num_tokens: int, block_size: int) -> None:
    """Works out the derived fields of ``StepBuffers`` from the uploaded ones, for a step padded to this size.

    Row ``i`` computes the tokens ``num_computed[i] ..`` of its request, as many as ``cu_seqlens_q`` says. Tokens that
    belong to no row, or to a row without a request, are at position 0 and are stored nowhere (slot -1). All rows are
    treated as sampling ones, since a CUDA graph cannot know how many do; the entries of the others mean nothing.
    """
    if fields["block_ids"].is_cuda:
        from twinserve.real_backend.kernels.triton_expand import expand_with_triton

        expand_with_triton(fields, num_rows, num_tokens, block_size)
    else:
        expand_with_torch(fields, num_rows, num_tokens, block_size)


def expand_with_torch(fields: Mapping[str, torch.Tensor], num_rows: int, num_tokens: int, block_size: int) -> None:
    """The reference, in plain torch."""
    ends, slots = fields["cu_seqlens_q"].long(), fields["row_slots"][:num_rows].long()
    computed = fields["num_computed"][:num_rows].long()
    new = ends[: num_rows + 1].diff()
    keys = computed + new
    fields["seqused_k"][:num_rows] = keys
    fields["cu_seqlens_k"][1 : num_rows + 1] = keys.cumsum(0)
    fields["block_table"][:num_rows] = fields["block_ids"][slots]
    owners = torch.repeat_interleave(torch.arange(num_rows, device=new.device), new)
    count = len(owners)
    positions = computed[owners] + torch.arange(count, device=new.device) - ends[owners]
    pages = fields["block_ids"][slots[owners], positions // block_size].long()
    has_request = slots[owners] < len(fields["block_ids"]) - 1
    fields["positions"][:count] = positions
    fields["positions"][count:num_tokens] = 0
    fields["slot_mapping"][:count] = torch.where(has_request, pages * block_size + positions % block_size, -1)
    fields["slot_mapping"][count:num_tokens] = -1
    _expand_samples(fields, num_rows, ends)


def _expand_samples(fields: Mapping[str, torch.Tensor], num_rows: int, ends: torch.Tensor) -> None:
    rows = fields["sample_rows"][:num_rows].long()
    slots = fields["row_slots"][rows].long()
    fields["logits_tokens"][:num_rows] = ends[rows + 1] - 1
    fields["sample_position"][:num_rows] = fields["num_computed"][rows] + ends[rows + 1] - ends[rows]
    for name in ("seed", "temperature", "top_p", "top_k"):
        fields[f"row_{name}"][:num_rows] = fields[name][slots]
