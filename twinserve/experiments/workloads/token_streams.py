"""Ids of token streams, in four ranges that never overlap.

Streams from ``1 << 62`` on belong to the engine, which gives outputs that nobody quotes a stream of its own there.
"""

from __future__ import annotations

_PROMPT = 1 << 60
_OUTPUT = 2 << 60
_SHARED_PREFIX = 3 << 60

MAX_HASH_ID = _PROMPT - 1
"""Hash ids of traces are stream numbers themselves: from 0 to this."""


def prompt_stream(request_id: int) -> int:
    """The stream of what only this request says."""
    return _PROMPT + request_id


def output_stream(request_id: int) -> int:
    """The stream of this request's answer, when later turns quote it."""
    return _OUTPUT + request_id


def shared_prefix_stream(group: int) -> int:
    """The stream of the system prompt that a group of clients shares."""
    return _SHARED_PREFIX + group
