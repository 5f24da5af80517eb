"""Prompts as segments of token streams, and the bytes that prefix-cache hashes are made of.

A simulation never needs token ids, only to know which prompts share a prefix. A prompt is therefore a tuple of
pieces: a ``Segment`` names tokens ``[offset, offset + length)`` of an endless stream, a ``TokenIds`` piece holds
explicit ids. Two prompts share a block exactly when the block's pieces are equal.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, repeat
from struct import Struct

_SEGMENT = Struct("<cQQQ")
_TOKEN_HEADER = Struct("<cQ")


encode_segment: Callable[[int, int, int], bytes] = partial(_SEGMENT.pack, b"s")
"""Canonical bytes of one piece (stream, offset, length) of a stream, made without an object."""


def encode_token_ids(ids: array[int]) -> bytes:
    """Canonical bytes of explicit ids, made without an object."""
    return _TOKEN_HEADER.pack(b"t", len(ids)) + ids.tobytes()


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens ``[offset, offset + length)`` of stream ``stream`` (all counts >= 0, ``length`` >= 1)."""

    stream: int
    offset: int
    length: int

    def part(self, start: int, end: int) -> Segment:
        return Segment(self.stream, self.offset + start, end - start)

    def encode(self) -> bytes:
        return encode_segment(self.stream, self.offset, self.length)

    def encode_blocks(self, start: int, end: int, size: int) -> Iterable[bytes]:
        """``part(...).encode()`` of each ``size`` tokens of ``[start, end)``, without an object for each."""
        begins = range(self.offset + start, self.offset + end, size)
        return map(_SEGMENT.pack, repeat(b"s"), repeat(self.stream), begins, repeat(size))


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Explicit token ids."""

    ids: array[int]

    @property
    def length(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> TokenIds:
        return TokenIds(self.ids[start:end])

    def encode(self) -> bytes:
        return encode_token_ids(self.ids)

    def encode_blocks(self, start: int, end: int, size: int) -> Iterable[bytes]:
        """``part(...).encode()`` of each ``size`` tokens of ``[start, end)``."""
        return (encode_token_ids(self.ids[begin : begin + size]) for begin in range(start, end, size))


Piece = Segment | TokenIds


class Prompt:
    """An immutable sequence of pieces.

    Neighbouring pieces of the same stream that continue each other are merged, so that equal content always has
    equal pieces and therefore equal hashes.
    """

    __slots__ = ("_ends", "pieces")

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces: tuple[Piece, ...] = tuple(_merge(pieces))
        self._ends = tuple(accumulate(piece.length for piece in self.pieces))

    @classmethod
    def of_stream(cls, stream: int, length: int) -> Prompt:
        """The first ``length`` tokens of one stream."""
        return cls((Segment(stream, 0, length),))

    @classmethod
    def of_token_ids(cls, token_ids: Iterable[int]) -> Prompt:
        return cls((TokenIds(array("q", token_ids)),))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prompt) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(self.encode(0, len(self)))

    def encode(self, start: int, end: int) -> bytes:
        """Canonical bytes of tokens ``[start, end)``: equal exactly for equal content."""
        return b"".join(piece.encode() for piece in self.slice(start, end))

    def encode_blocks(self, start: int, end: int, size: int) -> list[bytes]:
        """``encode`` of each ``size`` tokens of ``[start, end)``; ``end - start`` is a multiple of ``size``.

        One walk over the pieces, however many there are.
        """
        if len(self.pieces) == 1:
            return list(self.pieces[0].encode_blocks(start, end, size))
        blocks: list[bytes] = []
        begun, num_begun = b"", 0  # the block that the pieces before did not fill
        for piece in self.slice(start, end):
            length, done = piece.length, 0
            if num_begun:
                done = min(size - num_begun, length)
                begun += piece.part(0, done).encode()
                num_begun += done
                if num_begun < size:
                    continue
                blocks.append(begun)
            whole = (length - done) // size * size
            blocks += piece.encode_blocks(done, done + whole, size)
            num_begun = length - done - whole
            begun = piece.part(done + whole, length).encode() if num_begun else b""
        return blocks

    def slice(self, start: int, end: int) -> Iterator[Piece]:
        """The pieces that cover tokens ``[start, end)``, cut to that range."""
        for index in range(bisect_right(self._ends, start), len(self.pieces)):
            piece, piece_end = self.pieces[index], self._ends[index]
            begin = piece_end - piece.length
            if max(begin, start) >= end:
                return
            yield piece.part(max(start - begin, 0), min(end, piece_end) - begin)


def _merge(pieces: Iterable[Piece]) -> Iterator[Piece]:
    pending: Piece | None = None
    for piece in pieces:
        if piece.length == 0:
            continue
        joined = _join(pending, piece) if pending is not None else piece
        if joined is None and pending is not None:
            yield pending
            joined = piece
        pending = joined
    if pending is not None:
        yield pending


def _join(first: Piece, second: Piece) -> Piece | None:
    """``first`` and ``second`` as one piece, or None when the second does not continue the first."""
    if isinstance(first, TokenIds) and isinstance(second, TokenIds):
        return TokenIds(first.ids + second.ids)
    if isinstance(first, Segment) and isinstance(second, Segment):
        continues = first.stream == second.stream and first.offset + first.length == second.offset
        return Segment(first.stream, first.offset, first.length + second.length) if continues else None
    return None
