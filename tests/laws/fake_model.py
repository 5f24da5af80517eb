"""A model made of hashes that reads what a transformer would read: the paged KV cache, through the plan alone.

The stored value of a token is a hash of its id and of the value *read from the cache* for the token before it, so it
stands for the whole prefix, as keys and values of a deep layer do. The next token is a hash of all values of the
request as read from the cache. A block that is stale, shared wrongly, evicted while in use or written by two rows
therefore changes the tokens; each read is also compared with the value it should have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from twinserve.real_backend.inputs.token_ids import prompt_token_ids
from twinserve.sched_core.plan import StartedRequest, StepPlan, StepResult
from twinserve.sched_core.requests.prompt import Prompt

GARBAGE = -1


def _extend(previous: int, token: int) -> int:
    return hash((previous, token))


def _next_token(values: Iterable[int], vocab_size: int) -> int:
    return hash(tuple(values)) % vocab_size


def expected_tokens(prompt: Prompt, count: int, vocab_size: int) -> list[int]:
    """What an endless cache would give: the first ``count`` sampled ids after ``prompt``."""
    values: list[int] = []
    for token in prompt_token_ids(prompt, vocab_size).tolist():
        values.append(_extend(values[-1] if values else 0, token))
    sampled: list[int] = []
    for _ in range(count):
        sampled.append(_next_token(values, vocab_size))
        values.append(_extend(values[-1], sampled[-1]))
    return sampled


@dataclass
class _Sequence:
    """What a model runner keeps for a request between steps."""

    tokens: list[int]
    blocks: list[int]
    num_computed: int


class FakeModel:
    def __init__(self, num_blocks: int, block_size: int, vocab_size: int = 1000) -> None:
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._store = [[GARBAGE] * block_size for _ in range(num_blocks)]
        self._sequences: dict[int, _Sequence] = {}

    def run(self, plan: StepPlan) -> StepResult:
        """Compute every row in order; returns the sampled ids."""
        self._take(plan)
        written: set[tuple[int, int]] = set()
        sampled = []
        for row, request_id in enumerate(plan.request_ids.tolist()):
            self._compute(request_id, int(plan.num_computed[row]), int(plan.num_new[row]), written)
            if plan.samples[row]:
                sampled.append(self._sample(request_id))
        return StepResult(token_ids=np.array(sampled, dtype=np.int64))

    def spoil(self, plan: StepPlan, cached: Collection[int]) -> None:
        """A step that was cancelled after it had begun to write: garbage where it was to store values.

        Blocks in ``cached`` (findable before the step) are spared: a cancelled plan gives them back as they were.
        """
        tables = dict(self._granted(plan))
        for row, request_id in enumerate(plan.request_ids.tolist()):
            computed, new = int(plan.num_computed[row]), int(plan.num_new[row])
            for position in range(computed, computed + new):
                block, slot = divmod(position, self._block_size)
                if tables[request_id][block] not in cached:
                    self._store[tables[request_id][block]][slot] = GARBAGE

    def _granted(self, plan: StepPlan) -> list[tuple[int, list[int]]]:
        """The block table of every row of the plan as it is after the plan's grants."""
        started = {start.spec.request_id: start for start in plan.started}
        grants = np.split(plan.new_block_ids, np.cumsum(plan.num_new_blocks)[:-1])
        tables = []
        for request_id, grant in zip(plan.request_ids.tolist(), grants, strict=True):
            if request_id in started:
                blocks = list(started[request_id].block_ids)
                assert blocks[len(blocks) - len(grant) :] == grant.tolist(), "a started row's new blocks come last"
            else:
                blocks = [*self._sequences[request_id].blocks, *grant.tolist()]
            tables.append((request_id, blocks))
        return tables

    def _take(self, plan: StepPlan) -> None:
        """Bring the tables up to date, from the plan and nothing else."""
        tables = self._granted(plan)
        tail = plan.request_ids[plan.num_rows - len(plan.started) :].tolist()
        assert tail == [start.spec.request_id for start in plan.started], "started rows are the last rows"
        for start in plan.started:
            self._sequences[start.spec.request_id] = self._begin(start)
        for request_id, blocks in tables:
            self._sequences[request_id].blocks = blocks

    def _begin(self, start: StartedRequest) -> _Sequence:
        prompt = prompt_token_ids(start.spec.prompt, self._vocab_size).tolist()
        tokens = [*prompt, *start.output_token_ids]
        return _Sequence(tokens, [], start.num_cached_tokens)

    def _compute(self, request_id: int, computed: int, new: int, written: set[tuple[int, int]]) -> None:
        sequence = self._sequences[request_id]
        assert sequence.num_computed == computed, "a row continues where the last one ended"
        assert computed + new <= len(sequence.tokens), "a row computes known tokens only"
        for position in range(computed, computed + new):
            previous = self._read(sequence, position - 1) if position else 0
            block, slot = divmod(position, self._block_size)
            place = (sequence.blocks[block], slot)
            assert place not in written, f"block {place} is written twice in one step"
            written.add(place)
            self._store[place[0]][slot] = _extend(previous, sequence.tokens[position])
        sequence.num_computed += new

    def _sample(self, request_id: int) -> int:
        sequence = self._sequences[request_id]
        assert sequence.num_computed == len(sequence.tokens), "a row samples after its last known token"
        values = [self._read(sequence, position) for position in range(len(sequence.tokens))]
        assert values == _true_values(sequence.tokens), f"request {request_id} read another prefix's cache"
        token = _next_token(values, self._vocab_size)
        sequence.tokens.append(token)
        return token

    def _read(self, sequence: _Sequence, position: int) -> int:
        block, slot = divmod(position, self._block_size)
        return self._store[sequence.blocks[block]][slot]


def _true_values(tokens: Sequence[int]) -> list[int]:
    values: list[int] = []
    for token in tokens:
        values.append(_extend(values[-1] if values else 0, token))
    return values
