"""Writes run folders: ``OUT/<run id>/``, complete exactly when ``result.json`` is there and fits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files import strict_json
from twinserve.experiments.files.atomic import Writer, remove_leftovers, text_writer, write_files
from twinserve.experiments.files.names import CONFIG, DECISIONS, MANIFEST, REQUESTS, RESULT, STEPS, TOKENS
from twinserve.experiments.files.parquet import write_columns, write_decisions
from twinserve.experiments.settings.yaml_loader import dump_yaml
from twinserve.experiments.store.json_object import parse_object, read_object, read_small
from twinserve.run_core.record import RunRecord

FILES = "files"
"""The manifest's key for the sha256 of every other file of a finished run."""
REMEDY = "it does not count, and the run is made again"


@dataclass(frozen=True, slots=True)
class RunStore:
    """The runs below one parent folder."""

    parent: Path

    def folder(self, run_id: str) -> Path:
        return self.parent / run_id

    def look(self, run_id: str) -> Stored:
        """What is stored of a run. This one check is both resume and de-duplication.

        A result counts when it and the record beside it are, byte for byte, what the manifest says was written.
        """
        path = self.folder(run_id) / RESULT
        if not os.path.lexists(path):
            return Stored()
        try:
            return Stored(result=_whole_result(path, run_id))
        except ConfigError as error:
            return Stored(problem=str(error))

    def begin(self, run_id: str, about: About) -> None:
        """Write what is known before the run, which also shows that the folder can be written.

        A finished run of the same id stays whole until ``finish`` replaces it.
        """
        folder = self.folder(run_id)
        remove_leftovers(folder)
        writers = about.writers() if self.look(run_id).result is None else {}
        write_files(folder, writers, durable=False)

    def keep(self, run_id: str, about: About, record: RunRecord) -> None:
        """Keep the record of a run that was cut short: everything but a result."""
        if self.look(run_id).result is None:
            write_files(self.folder(run_id), about.writers() | _record_writers(record))

    def finish(self, run_id: str, about: About, record: RunRecord, result: Mapping[str, Any]) -> Path:
        """Write a finished run, the result last; returns its folder."""
        text = strict_json.dumps(result)
        digests = {RESULT: sha256(text.encode()).hexdigest()}
        records = {
            name: partial(_write_digested, write, digests, name) for name, write in _record_writers(record).items()
        }
        description = about.writers(digests)  # the manifest is written after the files that it is about
        writers: dict[str, Writer] = {
            CONFIG: description[CONFIG],
            **records,
            MANIFEST: description[MANIFEST],
            RESULT: text_writer(text),
        }
        write_files(self.folder(run_id), writers)
        return self.folder(run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A finished run's ``result``, or None; ``problem`` says, in one line, why a result that is there is none."""

    result: dict[str, Any] | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class About:
    """The description of a run: its resolved configuration, and the manifest with what a result must not hold."""

    config: Mapping[str, Any]
    manifest: Mapping[str, Any]

    def writers(self, digests: Mapping[str, str] | None = None) -> dict[str, Writer]:
        """By file name; ``digests`` of a finished run's files come into the manifest as they are when it is written."""

        def manifest(path: Path) -> None:
            files = {} if digests is None else {FILES: dict(digests)}
            text_writer(strict_json.dumps({**self.manifest, **files}))(path)

        return {CONFIG: text_writer(dump_yaml(_plain(self.config))), MANIFEST: manifest}


def _whole_result(path: Path, run_id: str) -> dict[str, Any]:
    manifest = path.with_name(MANIFEST)
    digests = read_object(manifest, REMEDY).get(FILES)
    if not isinstance(digests, Mapping) or not {RESULT, REQUESTS, STEPS, TOKENS} <= digests.keys():
        raise ConfigError(f"names no files of a finished run; {REMEDY}", file=manifest)
    text = read_small(path, REMEDY)
    if sha256(text).hexdigest() != digests[RESULT]:
        raise ConfigError(f"is not what the run wrote; {REMEDY}", file=path)
    result = parse_object(text, path, REMEDY)
    if result.get("run_id") != run_id:
        raise ConfigError(f"is the result of another run; {REMEDY}", file=path)
    for name in (REQUESTS, STEPS, TOKENS, DECISIONS):
        if name in digests:
            _check_digest(path.with_name(name), digests[name])
    return result


def _check_digest(path: Path, expected: object) -> None:
    try:
        if not path.is_file():
            raise ConfigError(f"{'is no file' if path.exists() else 'is missing'}; {REMEDY}", file=path)
        found = _digest(path)
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); {REMEDY}", file=path) from error
    if found != expected:
        raise ConfigError(f"is not what the run wrote; {REMEDY}", file=path)


def _write_digested(write: Writer, digests: dict[str, str], name: str, path: Path) -> None:
    write(path)
    digests[name] = _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _record_writers(record: RunRecord) -> dict[str, Writer]:
    writers: dict[str, Writer] = {
        REQUESTS: partial(write_columns, columns=record.requests),
        STEPS: partial(write_columns, columns=record.steps),
        TOKENS: partial(write_columns, columns=record.tokens),
    }
    if record.plans:
        writers[DECISIONS] = partial(write_decisions, plans=record.plans)
    return writers


def _plain(value: Any) -> Any:
    """A configuration in YAML's types; infinity stays a number, which YAML can write."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
