"""Figures: what is drawn, that it fits, and that bad folders are refused in one line."""

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.experiments.helpers.measured_folders import write_profile
from tests.experiments.helpers.records import MS, Life, make_record
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.parquet import write_columns
from twinserve.experiments.plots.cdf import plot_compare_cdfs
from twinserve.experiments.plots.encoding import encode
from twinserve.experiments.plots.error_bars import plot_error_split
from twinserve.experiments.plots.folder import save_figures, swept_keys
from twinserve.experiments.plots.style import save
from twinserve.experiments.plots.sweep import plot_sweep
from twinserve.experiments.plots.timeline import binned, plot_steps

CONFIG = {
    "model": {"name": "Qwen/Qwen3-8B"},
    "engine": {"policy": "mixed"},
    "workload": {"kind": "note_bench"},
    "sim": {"cost_model": {"hardware": "rtx-4090"}},
}


def sample_record(seed=0, num_requests=30):
    rng = np.random.default_rng(seed)
    lives = [
        Life(arrival_ms=40 * i, token_ms=(40 * i + 20 + np.cumsum(rng.integers(5, 90, 12))).tolist())
        for i in range(num_requests)
    ]
    steps = [
        {
            "step_id": i,
            "start_ns": 20 * i * MS,
            "end_ns": (20 * i + 15) * MS,
            "num_tokens": 64,
            "num_decodes": 4,
            "num_running": 5,
            "num_waiting": i % 3,
            "num_free_blocks": 20 - i % 9,
            "num_preempted": int(i % 17 == 3),
        }
        for i in range(60)
    ]
    return make_record(*lives, steps=steps)


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    record = sample_record()
    for name in ("requests", "steps", "tokens"):
        write_columns(folder / f"{name}.parquet", getattr(record, name))
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    (folder / "result.json").write_text(json.dumps({"num_blocks": 24}))
    return folder


def sweep_table(seeds=(0,), thresholds=(0,)):
    rows = [
        {
            "engine.policy": policy,
            "engine.max_num_batched_tokens": budget,
            "engine.enable_chunked_prefill": chunked,
            "engine.long_prefill_token_threshold": threshold,
            "seed": seed,
            "failed": 0 if chunked or budget > 512 else 7,
            "p99_ttft_ms": 90_000 / budget + 10 * seed + threshold,
            "p99_tpot_ms": 30 + budget / 100 + seed,
            "p99_itl_ms": 40 + budget / 10,
        }
        for policy in ("mixed", "prefill_first")
        for budget in (128, 256, 512, 1024, 2048)
        for chunked in (True, False)
        for threshold in thresholds
        for seed in seeds
    ]
    return pd.DataFrame(rows)


SWEPT = ["engine.policy", "engine.max_num_batched_tokens", "engine.enable_chunked_prefill"]


def assert_everything_fits(figure):
    figure.canvas.draw()
    renderer, edge = figure.canvas.get_renderer(), figure.bbox.padded(1)
    for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize")):
        assert text.get_fontsize() >= 7
    panels = [ax.get_tightbbox(renderer) for ax in figure.axes]
    legends = [legend.get_window_extent(renderer) for legend in figure.legends]
    for box in [*panels, *legends]:
        assert edge.x0 <= box.x0 <= box.x1 <= edge.x1
        assert edge.y0 <= box.y0 <= box.y1 <= edge.y1
    for above, below in pairwise([*legends, *panels]):
        assert above.y0 >= below.y1


def test_run_gives_two_figures_of_column_width_and_the_same_bytes_again(run_dir, tmp_path):
    first, second = (save_figures(run_dir, tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == ["cdf.png", "timeline.png"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert one.read_bytes()[16:20] == (1020).to_bytes(4, "big")  # PNG width: 3.4 inches at 300 dpi


def test_runs_without_steps_or_tokens_still_draw(run_dir, tmp_path):
    empty = make_record()
    for name in ("requests", "steps", "tokens"):
        write_columns(run_dir / f"{name}.parquet", getattr(empty, name))
    assert len(save_figures(run_dir, tmp_path / "out")) == 2


def test_compare_takes_records_and_run_folders(run_dir, tmp_path):
    runs = {"stored": run_dir, "fresh": sample_record(1), "empty": make_record()}
    path = save(plot_compare_cdfs(runs), tmp_path / "cdfs.png")
    assert path.stat().st_size > 10_000


def test_timeline_fits_and_shows_preemptions():
    figure = plot_steps(sample_record().steps, 24, "a title")
    assert_everything_fits(figure)
    labels = [text.get_text() for ax in figure.axes for text in ax.get_legend().get_texts()]
    assert labels == ["prefill", "decode", "KV cache", "preemption", "running", "waiting"]


spans = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        arrays(np.int64, 2 * n, elements=st.integers(1, 9)), arrays(np.int64, n, elements=st.integers(0, 99))
    )
)


@given(spans, st.integers(1, 40))
def test_binning_keeps_the_time_integral(steps, num_bins):
    durations, values = steps
    times = np.cumsum(durations).astype(float)
    start, end = times[::2], times[1::2]
    edges = np.linspace(0, times[-1], num_bins + 1)
    means = binned(start, end, values.astype(float), edges)
    assert (means * np.diff(edges)).sum() == pytest.approx((values * (end - start)).sum())
    assert means.max() <= values.max() + 1e-9


def test_sweep_draws_a_line_per_combination_of_the_other_keys():
    figure = plot_sweep(sweep_table(), SWEPT, title="Qwen3-8B, note_bench")
    assert_everything_fits(figure)
    for ax in figure.axes:
        assert len(ax.containers) == 4
    line = figure.axes[0].containers[0].lines[0]
    assert line.get_xdata().tolist() == [128, 256, 512, 1024, 2048]
    assert line.get_ydata().tolist() == [90_000 / x for x in (128, 256, 512, 1024, 2048)]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["mixed", "prefill_first", "chunked prefill on", "chunked prefill off", "some requests failed"]


def test_every_line_of_a_sweep_looks_different():
    encoding = encode(sweep_table(thresholds=(0, 256)), [*SWEPT, "engine.long_prefill_token_threshold"])
    combinations = [
        (policy, on, at) for policy in ("mixed", "prefill_first") for on in (True, False) for at in (0, 256)
    ]
    looks = {tuple(sorted(encoding.line_style(combination).items())) for combination in combinations}
    assert len(looks) == 8


def test_points_with_failed_requests_are_crossed():
    figure = plot_sweep(sweep_table(), SWEPT)
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert sorted(crosses[0].get_xdata()) == [128, 128, 256, 256, 512, 512]


def test_seeds_are_averaged_even_when_swept_by_name():
    figure = plot_sweep(sweep_table(seeds=(0, 1, 2)), [*SWEPT, "seed"])
    container = figure.axes[1].containers[0]
    assert container.lines[0].get_ydata()[0] == pytest.approx(30 + 1.28 + 1)
    assert container.has_yerr


def test_a_sweep_of_names_or_with_an_infinite_rate_uses_ranks():
    table = pd.DataFrame({"workload.arrival.request_rate": [1.0, 2.0, np.inf], "p99_ttft_ms": [10.0, 20.0, 30.0]})
    figure = plot_sweep(table, ["workload.arrival.request_rate"])
    assert figure.axes[0].containers[0].lines[0].get_xdata().tolist() == [0, 1, 2]
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == ["1.0", "2.0", "inf"]


def test_a_null_setting_is_a_value_like_others():
    table = sweep_table().assign(**{"workload.max_concurrency": [None, 8.0] * 10})
    figure = plot_sweep(table, ["workload.max_concurrency", "engine.max_num_batched_tokens"])
    assert len(figure.axes[0].containers) == 2


def test_missing_figures_leave_gaps():
    table = sweep_table()
    table.loc[table["engine.max_num_batched_tokens"] == 256, "p99_itl_ms"] = np.nan
    figure = plot_sweep(table, SWEPT)
    assert figure.axes[2].containers[0].lines[0].get_xdata().tolist() == [128, 512, 1024, 2048]


def test_nothing_but_seeds_swept_draws_nothing():
    assert plot_sweep(sweep_table(seeds=(0, 1)), ["seed"]) is None


def test_swept_keys_are_the_dotted_columns_that_vary():
    table = sweep_table().assign(**{"p99.9_ttft_ms": range(20), "model.name": "Qwen/Qwen3-8B"})
    assert swept_keys(table) == SWEPT


def test_a_folder_is_plotted_for_what_it_is(run_dir, tmp_path):
    sweep_table().to_csv(tmp_path / "summary.csv", index=False)
    assert [path.name for path in save_figures(tmp_path, tmp_path / "out")] == ["sweep_p99.png"]
    assert [path.name for path in save_figures(run_dir, tmp_path / "out")] == ["cdf.png", "timeline.png"]
    profile = write_profile(tmp_path / "profile")
    assert [path.name for path in save_figures(profile, tmp_path / "out")] == ["profile.png"]


def test_bad_folders_are_refused_in_one_line(run_dir, tmp_path):
    with pytest.raises(ConfigError, match="none of these: a run"):
        save_figures(tmp_path, tmp_path / "out")
    (run_dir / "steps.parquet").write_bytes(b"PAR1 cut short")
    with pytest.raises(ConfigError, match="cannot be read"):
        save_figures(run_dir, tmp_path / "out")
    (run_dir / "steps.parquet").unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        save_figures(run_dir, tmp_path / "out")
    (tmp_path / "summary.csv").write_text("")
    with pytest.raises(ConfigError, match="not a table"):
        save_figures(tmp_path, tmp_path / "out")
    sweep_table().iloc[:1].to_csv(tmp_path / "summary.csv", index=False)
    with pytest.raises(ConfigError, match="nothing to plot"):
        save_figures(tmp_path, tmp_path / "out")


def test_an_unwritable_place_is_refused_in_one_line(run_dir, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot be written"):
        save_figures(run_dir, tmp_path / "file")


def test_a_figure_goes_with_its_last_reference_and_pyplot_is_never_loaded(run_dir):
    code = (
        "import gc, sys, weakref\nfrom pathlib import Path\n"
        "from twinserve.experiments.plots.cdf import plot_compare_cdfs\n"
        f"kept = weakref.ref(plot_compare_cdfs({{'a': Path({str(run_dir)!r})}}))\n"
        "gc.collect()\nprint(kept(), 'matplotlib.pyplot' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["None", "False"]


def test_importing_metrics_and_plots_loads_no_heavy_library():
    heavy = "{'pandas', 'scipy', 'matplotlib', 'pyarrow'} & set(sys.modules)"
    modules = ", ".join(f"twinserve.experiments.{name}" for name in ("metrics", "report", "plots", "cli.plot"))
    code = f"import sys, {modules}; print({heavy})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_the_axis_of_a_sweep_can_be_chosen():
    table = sweep_table(thresholds=(0, 64, 128, 256, 512, 1024))
    keys = [*SWEPT, "engine.long_prefill_token_threshold"]
    figures = [plot_sweep(table, keys, across=across) for across in (None, "engine.max_num_batched_tokens")]
    labels = [figure.axes[-1].get_xlabel() for figure in figures]
    assert labels == ["long-prefill threshold (tokens)", "token budget (tokens per step)"]


def test_parts_of_an_error_are_stacked_away_from_zero_and_the_whole_is_marked():
    totals = {"TTFT p99": 5.0, "unknown": None, "ITL p50": -9.0}
    parts = {"one": {"TTFT p99": 20.0, "ITL p50": -4.0}, "other": {"TTFT p99": -15.0, "ITL p50": -5.0}}
    ax = plot_error_split(totals, parts, "title").axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["TTFT p99", "ITL p50"]
    spans = [(bar.get_x(), bar.get_width()) for container in ax.containers for bar in container]
    assert spans == [(0, 20), (0, -4), (0, -15), (-4, -5)]
    assert [line.get_xdata().tolist() for line in ax.lines if line.get_marker() == "D"] == [[5.0, -9.0]]
