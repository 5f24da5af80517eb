"""What ``LLM.generate`` takes as prompts: texts, lists of token ids, and vLLM's dictionaries of either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

from twinserve.real_backend.errors import EngineError, shown

PromptInput: TypeAlias = str | Sequence[int] | Mapping[str, Any]

_KEYS = ("prompt", "prompt_token_ids", "cache_salt")


class OnePrompt(NamedTuple):
    """A text, or token ids that may be of any kind yet, and the salt of its cached blocks."""

    content: str | Sequence[Any]
    cache_salt: str


def prompt_list(prompts: PromptInput | Sequence[PromptInput], cache_salt: str | None) -> list[OnePrompt]:
    """Every prompt; one text, one list of token ids or one dictionary is one prompt.

    ``cache_salt`` is for prompts that bring none of their own.

    Raises:
        EngineError: something else was given.
    """
    given: Any = _listed(prompts)
    if isinstance(given, str | Mapping) or _are_ids(given):
        given = [given]
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise EngineError(f"prompts must be a list of texts or of lists of token ids, got {shown(given)}")
    return [_one(index, prompt, cache_salt) for index, prompt in enumerate(given)]


def token_ids(index: int, ids: Sequence[Any], vocab_size: int) -> list[int]:
    """``ids`` as a model of this vocabulary can take them. Raises EngineError."""
    for token_id in ids:
        if not _is_id(token_id):
            raise EngineError(f"prompt {index} has {shown(token_id)} among its token ids; they are whole numbers")
    numbers = [int(token_id) for token_id in ids]
    if numbers and not 0 <= min(numbers) <= max(numbers) < vocab_size:
        raise EngineError(f"prompt {index} has token ids outside the vocabulary of {vocab_size}")
    return numbers


def _one(index: int, prompt: Any, cache_salt: str | None) -> OnePrompt:
    content, salt = prompt, cache_salt
    if isinstance(prompt, Mapping):
        unknown = [key for key in prompt if key not in _KEYS]
        if unknown:
            raise EngineError(f"prompt {index} has the key {shown(unknown[0])}; known are {', '.join(_KEYS)}")
        ids, salt = prompt.get("prompt_token_ids"), prompt.get("cache_salt", cache_salt)
        content = prompt.get("prompt") if ids is None else ids
        if content is prompt.get("prompt") and not isinstance(content, str):
            raise EngineError(f"prompt {index} has neither a text as 'prompt' nor 'prompt_token_ids'")
    content = _listed(content)
    if isinstance(content, bytes | Mapping) or not isinstance(content, Iterable):
        raise EngineError(f"prompt {index} must be a text or a list of token ids, got {shown(content)}")
    return OnePrompt(content if isinstance(content, str) else list(content), _salt(index, salt))


def _salt(index: int, salt: Any) -> str:
    if salt is None:
        return ""
    if not isinstance(salt, str) or not salt.isascii():
        raise EngineError(f"prompt {index} has the cache_salt {shown(salt)}; it must be a text of ASCII characters")
    return salt


def _are_ids(prompts: Any) -> bool:
    """A list of ids, not of prompts; bools count, so that they are refused as ids."""
    is_list = isinstance(prompts, Sequence) and not isinstance(prompts, str | bytes)
    return is_list and len(prompts) > 0 and all(isinstance(part, Integral | float) for part in prompts)


def _listed(value: Any) -> Any:
    """An array or a tensor as a list."""
    return value.tolist() if hasattr(value, "tolist") else value


def _is_id(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
