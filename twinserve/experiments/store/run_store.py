"""Writes run folders: ``OUT/<run id>/``, complete exactly when ``result.json`` exists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files import strict_json
from twinserve.experiments.files.atomic import Writer, remove_leftovers, storage_error, text_writer, write_files
from twinserve.experiments.files.names import CONFIG, DECISIONS, MANIFEST, REQUESTS, RESULT, STEPS, TOKENS
from twinserve.experiments.files.parquet import write_columns, write_decisions
from twinserve.experiments.settings.yaml_loader import dump_yaml
from twinserve.run_core.record import RunRecord


@dataclass(frozen=True, slots=True)
class RunStore:
    """The runs below one parent folder."""

    parent: Path

    def folder(self, run_id: str) -> Path:
        return self.parent / run_id

    def find(self, run_id: str) -> dict[str, Any] | None:
        """The result of a finished run, or None. This one check is both resume and de-duplication."""
        path = self.folder(run_id) / RESULT
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise storage_error(path, error) from error
        except ValueError as error:
            raise ConfigError(f"is not the result of a run ({error}); delete it, or use --force", file=path) from error
        if not isinstance(result, dict) or result.get("run_id") != run_id:
            raise ConfigError("is not the result of this run; delete it, or use --force", file=path)
        return result

    def begin(self, run_id: str, about: About) -> None:
        """Write what is known before the run, which also shows that the folder can be written.

        A finished run of the same id stays whole until ``finish`` replaces it.
        """
        folder = self.folder(run_id)
        remove_leftovers(folder)
        writers = {} if (folder / RESULT).exists() else about.writers()
        write_files(folder, writers)

    def keep(self, run_id: str, about: About, record: RunRecord) -> None:
        """Keep the record of a run that was cut short: everything but a result."""
        if not (self.folder(run_id) / RESULT).exists():
            write_files(self.folder(run_id), about.writers() | _record_writers(record))

    def finish(self, run_id: str, about: About, record: RunRecord, result: Mapping[str, Any]) -> Path:
        """Write a finished run, the result last; returns its folder."""
        last = {RESULT: text_writer(strict_json.dumps(result))}
        write_files(self.folder(run_id), about.writers() | _record_writers(record) | last)
        return self.folder(run_id)


@dataclass(frozen=True, slots=True)
class About:
    """The description of a run: its resolved configuration, and the manifest with what a result must not hold."""

    config: Mapping[str, Any]
    manifest: Mapping[str, Any]

    def writers(self) -> dict[str, Writer]:
        return {
            CONFIG: text_writer(dump_yaml(_plain(self.config))),
            MANIFEST: text_writer(strict_json.dumps(self.manifest)),
        }


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
