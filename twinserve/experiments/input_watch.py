"""Whether what a run used is what its run id was made of: its inputs may not change from their digest to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.identity import Identity, engine_files, identify, input_files, policy_modules

Marks: TypeAlias = Mapping[str, object]
"""Role of an input -> what any change to it, even one that is undone, leaves different."""

DIGEST = "__twinserve_digest__"
"""What a policy's module carries once a run used it: the digest of the source that it was imported from."""


@dataclass(slots=True, kw_only=True)
class InputWatch:
    """The identity of a run, and a check that it still holds.

    Files are read by many readers, each in its own way. So their digest is taken before any reads, and again when all
    have; what changed and was changed back in between shows in the files' times and inode numbers.
    """

    experiment: Experiment
    find_files: Callable[[Experiment], Mapping[str, Path]]
    identify: Callable[[], Identity]
    identity: Identity = field(init=False)
    _marks: Marks = field(init=False)
    _imported: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._imported = frozenset(set(policy_modules(self.experiment).values()) & sys.modules.keys())
        self._marks = self._now()
        self.identity = self.identify()
        self._check_modules()

    def check(self) -> None:
        """Call it when nothing will be read any more, before anything is stored.

        Raises:
            RunError: an input changed.
        """
        changed = self._changed()
        if changed is None:
            self._check_modules()
            self._mark_modules()
            return
        for module in set(policy_modules(self.experiment).values()) - self._imported:
            sys.modules.pop(module, None)  # nobody knows which of its versions this is
        raise RunError("changed while the run used it, so nothing was stored; run it again", key=changed)

    def _changed(self) -> str | None:
        """The role of an input that is not what it was, None where all are."""
        try:
            inputs, marks = self.identify().inputs, self._now()
        except ConfigError as error:  # it is gone
            return error.key or "an input file"
        roles = [*self.identity.inputs, *inputs, *self._marks, *marks]
        before, now = (self.identity.inputs, self._marks), (inputs, marks)
        return next((role for role in roles if [a.get(role) for a in before] != [b.get(role) for b in now]), None)

    def _now(self) -> Marks:
        with self.experiment.errors_name_source():
            return {role: _mark(path) for role, path in self.find_files(self.experiment).items()}

    def _check_modules(self) -> None:
        for role, name in policy_modules(self.experiment).items():
            used = getattr(sys.modules.get(name), DIGEST, None)
            if used not in (None, self.identity.inputs[role]):
                problem = f"the file of module {name} changed after this process imported it; start a new process"
                raise RunError(problem, key=role)

    def _mark_modules(self) -> None:
        for role, name in policy_modules(self.experiment).items():
            if name in sys.modules:
                setattr(sys.modules[name], DIGEST, self.identity.inputs[role])


def watch_run(experiment: Experiment, code: str) -> InputWatch:
    """Begins to watch the inputs of a run; ``code`` as for ``identify``.

    Raises:
        ConfigError: an input file is missing, or a policy's module is not the one that was imported.
    """
    return InputWatch(experiment=experiment, find_files=input_files, identify=lambda: identify(experiment, code))


def watch_profile(experiment: Experiment, identify: Callable[[], Identity]) -> InputWatch:
    """As ``watch_run`` for a profile, whose identity ``identify`` gives."""
    return InputWatch(experiment=experiment, find_files=engine_files, identify=identify)


def _mark(path: Path) -> object:
    if not path.is_dir():
        return _status(path)
    return {file: _status(file) for file in path.rglob("*") if not file.is_dir()}


def _status(path: Path) -> object:
    try:
        found = [os.lstat(path), os.stat(path)]
    except OSError as error:
        return error.errno
    return [(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in found]
