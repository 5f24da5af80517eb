"""Block tables of requests over the pool: prefix hits, growth, registration and release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import islice

from xxhash import xxh3_128_digest

from twinserve.sched_core.blocks.block_pool import BlockPool
from twinserve.sched_core.config import HashAlgorithm
from twinserve.sched_core.journal import Journal
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.requests.spec import RequestSpec


def _sha256(content: bytes) -> bytes:
    return sha256(content).digest()


_DIGESTS: dict[HashAlgorithm, Callable[[bytes], bytes]] = {"xxh3_128": xxh3_128_digest, "sha256": _sha256}


class BlockManager:
    """Blocks of ``block_size`` tokens for every request of an engine.

    A key is the digest of the previous block's key and the block's tokens; the first block's predecessor stands for
    the cache salt and the extra keys (LoRA and the like), so prompts under different salts never share. Keys are
    computed when tokens become known, never while scheduling.
    """

    def __init__(
        self, pool: BlockPool, block_size: int, journal: Journal, *, caching: bool, algorithm: HashAlgorithm
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self.caching = caching
        self._record = journal.record
        self._digest = _DIGESTS[algorithm]

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def hash_prompt(self, request: Request) -> None:
        """Compute the keys of an arriving request's full prompt blocks."""
        if not self.caching:
            return
        size, digest, key = self.block_size, self._digest, self._root(request.spec)
        contents = request.spec.prompt.encode_blocks(0, request.num_prompt_tokens // size * size, size)
        request.block_keys = [key := digest(key + content) for content in contents]

    def hash_next_block(self, request: Request) -> None:
        """Compute one key more: the last sampled token has completed a block."""
        if not self.caching:
            return
        keys, size = request.block_keys, self.block_size
        parent = keys[-1] if keys else self._root(request.spec)
        keys.append(self._digest(parent + request.encode_block(len(keys) * size, size)))

    def find_hits(self, request: Request) -> list[int]:
        """Cached blocks that hold the longest known prefix.

        At least the last token must be computed to sample the next one, so the hit ends at most one token before
        the end: a full hit gives its last block back (as in vLLM).
        """
        return self.pool.cache.longest_prefix(islice(request.block_keys, (request.num_tokens - 1) // self.block_size))

    def is_blocked(self, request: Request) -> bool:
        """True when ``block`` was told of a waiting request and nothing has happened since that could help it."""
        pool = self.pool
        return pool.num_returned < request.blocked_until and pool.cache.num_retries == request.blocked_at

    def block(self, request: Request, num_hits: int, num_short: int) -> None:
        """A waiting request with ``num_hits`` hits found ``num_short`` free blocks too few for all of its tokens.

        That stays so until as many have come back or the block after its hits is cached. Taking blocks never helps
        it: a hit that is evicted, or used by another request, changes what it needs and what is free alike.
        """
        pool = self.pool
        if num_hits < len(request.block_keys):
            pool.cache.awaited.add(request.block_keys[num_hits])
        request.blocked_at, request.blocked_until = pool.cache.num_retries, pool.num_returned + num_short

    def pin(self, request: Request, hits: list[int]) -> None:
        """Make prefix hits the start of a waiting request's table.

        Before any new block is taken: taking evicts, and must not evict a hit.
        """
        if hits:
            self.pool.touch(hits)
        request.block_ids = [*hits]
        self._record((self._set_blocks, request, []))

    def advance(
        self, requests: Sequence[Request], starts: Sequence[int], ends: Sequence[int], num_blocks: Sequence[int]
    ) -> list[int]:
        """Let each request compute tokens ``[starts[i], ends[i])``, in ``num_blocks[i]`` more blocks.

        Returns the new blocks, in order; the caller has checked that so many are free. The blocks that are filled
        become findable while the step is being planned, so that later requests of the same step share them; a
        cancelled step takes it back.
        """
        total, size, caching, used = sum(num_blocks), self.block_size, self.caching, 0
        taken = self.pool.allocate(total) if total else []
        filled: list[int] = []
        keys: list[bytes] = []
        for request, start, end, num_new in zip(requests, starts, ends, num_blocks, strict=True):
            blocks = request.block_ids
            if num_new:
                blocks += taken[used : used + num_new]
                used += num_new
            first, last = start // size, end // size
            if first < last and caching:
                if last - first == 1:  # as for every decode: two slices cost more
                    filled.append(blocks[first])
                    keys.append(request.block_keys[first])
                else:
                    filled += blocks[first:last]
                    keys += request.block_keys[first:last]
        if taken:
            self._record((self._shrink, requests, num_blocks))
        if keys:
            self.pool.cache.register(filled, keys)
        return taken

    def unregister_from(self, request: Request, num_computed: int) -> None:
        """Take back what this step registered for a request that will not run in it after all."""
        self.pool.cache.forget(request.block_ids[num_computed // self.block_size :])

    def free(self, request: Request) -> None:
        """Release a request's blocks, last first, so that shared prefixes outlive their continuations."""
        blocks = request.block_ids
        request.block_ids = []
        self._record((self._set_blocks, request, blocks))
        self.pool.release(blocks[::-1])

    def _root(self, spec: RequestSpec) -> bytes:
        if not spec.cache_salt and not spec.extra_keys:
            return b""
        keys = (spec.cache_salt, *spec.extra_keys)
        return self._digest(b"".join(len(key).to_bytes(8, "little") + key.encode() for key in keys))

    @staticmethod
    def _set_blocks(request: Request, blocks: list[int]) -> None:
        request.block_ids = blocks

    @staticmethod
    def _shrink(requests: Sequence[Request], counts: Sequence[int]) -> None:
        for request, count in zip(requests, counts, strict=True):
            if count:
                del request.block_ids[-count:]
