"""Measures and stores a profile; an interrupted one is resumed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from twinserve.experiments.backends.backend_run import Progress
from twinserve.experiments.backends.real import check_real, profiled_engine
from twinserve.experiments.config.load import Experiment, load_experiment
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.files import strict_json
from twinserve.experiments.identity import code_digest, identify_profile
from twinserve.experiments.input_watch import InputWatch, watch_profile
from twinserve.experiments.manifest import describe_start
from twinserve.experiments.settings.input_paths import map_paths
from twinserve.experiments.settings.overrides import Override
from twinserve.experiments.store.profile_store import PartWriter, ProfileStore
from twinserve.experiments.store.run_store import About

if TYPE_CHECKING:
    from twinserve.real_backend.profiling.profile import Profile

SAME_ENGINE = ("device", "driver", "torch", "attention_backend", "num_blocks", "capture_sizes")
"""Facts that an interrupted profile and its continuation must share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """How much is measured: ``num_visits`` per shape, within ``max_seconds`` in all (engine start not counted), of a
    grid whose drawn part is scaled by ``density``.
    """

    max_seconds: float = 180.0
    num_visits: int = 4
    density: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedProfile:
    """A stored profile; ``was_there`` when an earlier one of the same id was found instead of measuring again."""

    folder: Path
    manifest: Mapping[str, Any]
    was_there: bool = False


def load_profiled(name: str, overrides: Sequence[Override] = ()) -> Experiment:
    """As ``load_experiment``, for the real engine whatever ``backend`` says, so that no simulation need be described.

    Raises:
        ConfigError: one line that names the file (or the override), the key and what would be right.
    """
    real = Override(key="backend", value="real", source="profile")
    return replace(load_experiment(name, [*overrides, real]), overrides=tuple(overrides))


def run_profile(
    experiment: Experiment,
    out: Path,
    settings: ProfileSettings,
    *,
    force: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    on_progress: Progress | None = None,
) -> FinishedProfile:
    """Measure and store a profile of the experiment's real engine below ``out``, or find it finished there.

    ``announce`` is told, in one line, what will be measured and about how long that takes.

    Raises:
        ConfigError: the configuration, the device or the output folder cannot be used.
        RunError: the engine failed, and what was measured is kept: the next call continues. Or an input file changed
            meanwhile, and nothing is kept.
    """
    code = code_digest("real")
    inputs = watch_profile(experiment, lambda: identify_profile(experiment, code, asdict(settings)))
    store = ProfileStore(out / inputs.identity.run_id)
    force = force or not inputs.identity.reusable
    if store.is_complete and not force:
        return FinishedProfile(folder=store.folder, manifest=store.manifest() or {}, was_there=True)
    with experiment.errors_name_source():
        check_real(experiment)
        begun = None if force else store.manifest()
        job = _Job(experiment=experiment, inputs=inputs, store=store, settings=settings, begun=begun)
        manifest = job.run(announce, on_progress)
    return FinishedProfile(folder=store.folder, manifest=manifest)


@dataclass(slots=True, kw_only=True)
class _Job:
    """A session of measuring; ``begun`` is the manifest of the earlier one that it continues, None to begin anew."""

    experiment: Experiment
    inputs: InputWatch
    store: ProfileStore
    settings: ProfileSettings
    begun: Mapping[str, Any] | None
    began: float = field(default_factory=monotonic)

    def run(self, announce: Callable[[str], None], on_progress: Progress | None) -> dict[str, Any]:
        settings = self.settings
        num_blocks = None if self.begun is None else self.begun.get("num_blocks")
        with profiled_engine(
            self.experiment, num_blocks=num_blocks, num_visits=settings.num_visits, density=settings.density
        ) as profile:
            self.inputs.check()
            manifest = self._manifest(profile)
            self._check_same_engine(manifest)
            if self.begun is None:
                self.store.discard()
            with self._described(manifest):
                self._measure(profile, announce, on_progress)
            return self._finish(manifest)

    def _manifest(self, profile: Profile) -> dict[str, Any]:
        """All but what only the end shows."""
        start = describe_start(self.experiment, self.inputs.identity)
        engine = self.experiment.config.engine
        return {
            "kind": "profile",
            "complete": False,
            **start,
            **profile.facts,
            "triton": start["versions"]["triton"],
            "num_blocks": profile.facts["kv_pool"]["num_blocks"],
            "block_size": engine.block_size,
            "max_num_batched_tokens": engine.max_num_batched_tokens,
            "max_num_seqs": engine.max_num_seqs,
            "max_model_len": engine.max_model_len,
            "enforce_eager": engine.enforce_eager,
            "num_shapes": len(profile.grid.shapes),
            "num_skipped_shapes": profile.grid.num_skipped,
            "repeats": profile.max_repeats,
            "settings": asdict(self.settings),
            **{name: self.begun[name] for name in ("started", "kv_pool") if self.begun and name in self.begun},
        }

    def _check_same_engine(self, manifest: Mapping[str, Any]) -> None:
        if self.begun is None:
            return
        for name in SAME_ENGINE:
            before, now = self.begun.get(name), strict_json.plain(manifest[name])
            if before != now:
                problem = f"was begun with {name} {before}, which is {now} now; choose another --out, or use --force"
                raise ConfigError(problem, file=self.store.folder)

    @contextmanager
    def _described(self, manifest: dict[str, Any]) -> Iterator[None]:
        """Keeps the manifest in the folder, with the time spent so far."""
        self.store.describe(self._about(manifest))
        try:
            yield
        finally:
            self.store.describe(self._about(manifest))

    def _measure(self, profile: Profile, announce: Callable[[str], None], on_progress: Progress | None) -> None:
        done = self.store.measured()
        num_all, num_done = len(profile.pieces), sum(piece.first in done for piece in profile.pieces)
        announce(_announcement(profile, done, num_done, self.settings.max_seconds))
        began = monotonic()
        with PartWriter(self.store, profile.columns) as parts, closing(profile.measure(done)) as measured:
            for number, rows in enumerate(measured, num_done + 1):
                parts.add(rows)
                if on_progress is not None:
                    on_progress(number, num_all)
                if monotonic() - began > self.settings.max_seconds:
                    return

    def _finish(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        measured = self.store.measured()
        if not measured:
            raise RunError("no step could be measured: none of the grid fits into the KV pool")
        shapes = {shape_id for shape_id, _ in measured if shape_id < manifest["num_shapes"]}
        counts = {"num_shapes_measured": len(shapes), "num_steps": len(measured)}
        complete = {**manifest, "complete": True, **counts}
        self._check_inputs()
        self.store.finish(self._about(complete))
        return complete

    def _check_inputs(self) -> None:
        try:
            self.inputs.check()
        except RunError:
            self.store.discard()  # nobody knows which of the parts to keep
            raise

    def _about(self, manifest: Mapping[str, Any]) -> About:
        earlier = 0.0 if self.begun is None else self.begun.get("wall_time_s", 0.0)
        spent = {"wall_time_s": round(earlier + monotonic() - self.began, 3)}
        config = map_paths(self.experiment.config.model_dump(), self.experiment.base_dir, str)
        return About(config, {**manifest, **spent})


def _announcement(profile: Profile, done: Collection[tuple[int, int]], num_done: int, max_seconds: float) -> str:
    """Before the first long wait: how much, how long."""
    facts, grid = profile.facts, profile.grid
    engine = ", ".join(facts[name] for name in ("model", "device", "attention_backend"))
    skipped = f" ({grid.num_skipped} more do not fit into the KV pool)" if grid.num_skipped else ""
    there = f"{num_done} of {len(profile.pieces)} measurements are there; " if num_done else ""
    seconds = min(profile.estimate_s(done), max_seconds)
    return (
        f"{engine}: {len(grid.shapes)} step shapes{skipped}; "
        f"{there}about {seconds:.0f} s and some for engine runs, {max_seconds:g} s at most"
    )
