"""Token ids of prompts, made before their requests start: the device waits for whatever a start takes."""

from __future__ import annotations

from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.inputs.token_ids import prompt_token_ids
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.spec import RequestSpec

_MAX_PREFETCHED_TOKENS = 1 << 20
"""8 MiB: more than any batch starts at once."""


class PromptPrefetch:
    """Prompts of accepted requests in their order: pending, or as token ids as far as there was time to make them."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._pending: dict[int, RequestSpec] = {}
        self._token_ids: dict[int, Ints] = {}
        self._num_tokens = 0

    def add(self, spec: RequestSpec) -> None:
        """``spec`` was accepted and may start later."""
        self._pending[spec.request_id] = spec

    def advance(self) -> bool:
        """Makes the ids of one prompt; False when none is pending or enough are there."""
        if not self._pending or self._num_tokens >= _MAX_PREFETCHED_TOKENS:
            return False
        request_id = next(iter(self._pending))
        spec = self._pending.pop(request_id)
        token_ids = prompt_token_ids(spec.prompt, self._vocab_size)
        self._token_ids[request_id] = token_ids
        self._num_tokens += len(token_ids)
        return True

    def take(self, spec: RequestSpec) -> Ints:
        """The prompt's ids of a request that starts. Raises EngineError for one outside the vocabulary.

        Checked here, since on a GPU a wrong id kills the process's use of the device.
        """
        token_ids = self._token_ids.get(spec.request_id)
        if token_ids is None:
            token_ids = prompt_token_ids(spec.prompt, self._vocab_size)
        self.drop(spec.request_id)
        if not 0 <= token_ids.min() <= token_ids.max() < self._vocab_size:
            raise EngineError(
                f"request {spec.request_id}: its prompt has token ids outside the vocabulary of {self._vocab_size}"
            )
        return token_ids

    def drop(self, request_id: int) -> None:
        """Drops what is kept for a request, if anything."""
        self._pending.pop(request_id, None)
        self._num_tokens -= len(self._token_ids.pop(request_id, ()))
