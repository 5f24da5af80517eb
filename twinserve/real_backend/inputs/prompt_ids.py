"""Token ids of prompts, made before their requests start: the device waits for whatever a start takes."""

from __future__ import annotations

from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.inputs.token_ids import prompt_token_ids
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.spec import RequestSpec

_MOST_READY_TOKENS = 1 << 20
"""8 MiB: more than any batch starts at once."""


class PromptIds:
    """Ids of the prompts that are expected, in the order in which they are, as far as there was time for them."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._expected: dict[int, RequestSpec] = {}
        self._ready: dict[int, Ints] = {}
        self._num_ready_tokens = 0

    def expect(self, spec: RequestSpec) -> None:
        self._expected[spec.request_id] = spec

    def prepare(self) -> bool:
        """Makes the ids of one prompt; False when none is expected or enough are ready."""
        if not self._expected or self._num_ready_tokens >= _MOST_READY_TOKENS:
            return False
        request_id = next(iter(self._expected))
        spec = self._expected.pop(request_id)
        ids = prompt_token_ids(spec.prompt, self._vocab_size)
        self._ready[request_id] = ids
        self._num_ready_tokens += len(ids)
        return True

    def take(self, spec: RequestSpec) -> Ints:
        """The ids of a request that starts. Raises EngineError for one outside the vocabulary.

        Checked here, since on a GPU a wrong id kills the process's use of the device.
        """
        ids = self._ready.get(spec.request_id)
        if ids is None:
            ids = prompt_token_ids(spec.prompt, self._vocab_size)
        self.forget(spec.request_id)
        if not 0 <= ids.min() <= ids.max() < self._vocab_size:
            raise EngineError(
                f"request {spec.request_id}: its prompt has token ids outside the vocabulary of {self._vocab_size}"
            )
        return ids

    def forget(self, request_id: int) -> None:
        """Drops what is kept for a request, if anything."""
        self._expected.pop(request_id, None)
        self._num_ready_tokens -= len(self._ready.pop(request_id, ()))
