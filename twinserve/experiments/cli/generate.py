"""``twinserve generate``: generates text from a model folder on the real engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinserve.experiments.errors import ConfigError


def generate(
    model: Annotated[Path, typer.Option(metavar="DIR", help="A Hugging Face folder with config, weights, tokenizer.")],
    prompt: Annotated[list[str], typer.Option(help="Text to continue; may be given several times.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens to generate for each prompt.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the most likely token.")] = 0.0,
    device: Annotated[str, typer.Option(help="cuda, cuda:1, ... or cpu.")] = "cuda",
    attention_backend: Annotated[str, typer.Option(help="auto, fa3, fa2, torch_varlen, triton or sdpa.")] = "auto",
    num_gpu_blocks: Annotated[
        int | None, typer.Option(min=1, help="KV blocks of 256 tokens; needed on the CPU, else measured.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(min=2, help="Longest prompt and answer together; 4096, or less if the model's is.")
    ] = None,
    enforce_eager: Annotated[bool, typer.Option(help="No CUDA graphs: a faster start, slower steps.")] = False,
) -> None:
    """Continue prompts with a model."""
    try:
        from twinserve.real_backend import LLM, EngineError, SamplingParams
        from twinserve.real_backend.llm import Completion
    except ImportError as error:
        raise ConfigError(f"the real engine cannot start ({error}); pip install 'twinserve[real]'") from error
    try:
        engine = LLM(
            model,
            device=device,
            attention_backend=attention_backend,
            num_gpu_blocks_override=num_gpu_blocks,
            max_model_len=max_model_len,
            enforce_eager=enforce_eager,
        )
        completions: list[Completion] = engine.generate(
            prompt, SamplingParams(max_tokens=max_tokens, temperature=temperature)
        )
    except (EngineError, ValueError) as error:
        raise ConfigError(str(error)) from error
    for text, completion in zip(prompt, completions, strict=True):
        typer.echo(f"{text}{completion['text']}")
