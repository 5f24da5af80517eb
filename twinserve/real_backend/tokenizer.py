"""The tokenizer of a model folder, with everything that can be wrong with its files in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinserve.real_backend.errors import EngineError, foreign_errors
from twinserve.real_backend.model.json_files import is_file, read_json

_FILES = (
    "tokenizer_config.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
)
_LARGEST_BYTES = 1 << 28


class FolderTokenizer:
    """Text to ids and back; random test models have no tokenizer: prompts and results are then token ids.

    Raises:
        EngineError: there are tokenizer files, and they cannot be loaded.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer = self._load() if is_file(folder / _FILES[0]) else None

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The end-of-sequence id that the tokenizer names, if any."""
        with self._clear_errors():
            eos = None if self._tokenizer is None else self._tokenizer.eos_token_id
        return (eos,) if type(eos) is int else ()

    def encode(self, index: int, text: str) -> list[int]:
        """The ids of prompt number ``index``. Raises EngineError without a tokenizer, or for what it cannot take."""
        if self._tokenizer is None:
            raise EngineError(f"{self._folder} {self._what_is_missing()}; give prompts as token ids")
        with foreign_errors(f"prompt {index} cannot be turned into tokens"):
            return list(self._tokenizer.encode(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text without special tokens; empty without a tokenizer."""
        if self._tokenizer is None:
            return ""
        with self._clear_errors():
            return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def _what_is_missing(self) -> str:
        if any(is_file(self._folder / name) for name in _FILES[1:]):
            return f"has tokenizer files but no {_FILES[0]}, which is needed as well; get it"
        return "has no tokenizer"

    def _load(self) -> Any:
        from transformers import AutoTokenizer

        with self._clear_errors():
            # No code of the folder's own, no question whether to run it, and no look at the network.
            return AutoTokenizer.from_pretrained(self._folder, trust_remote_code=False, local_files_only=True)

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Names the file that is no JSON object, or all of them."""
        try:
            with foreign_errors(f"the tokenizer of {self._folder} ({', '.join(_FILES[:2])}) cannot be used"):
                yield
        except EngineError:
            for name in _FILES:
                if is_file(self._folder / name):
                    read_json(self._folder / name, largest_bytes=_LARGEST_BYTES)
            raise
