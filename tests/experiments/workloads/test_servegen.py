"""ServeGen's clients."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.helpers.workload_builders import TINY, arrivals_ns, build, input_lens, output_lens
from tests.paths import real_trace
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.workloads import ServeGenConfig, workload_files


def servegen(**keys: object) -> object:
    return build(**({"kind": "servegen", "path": "servegen", "duration_s": 600.0} | keys))


def clients(workload: object) -> list[str]:
    return [spec.client for spec in workload.requests]


def test_clients_are_merged_by_arrival_and_keep_their_names() -> None:
    workload = servegen()
    assert arrivals_ns(workload) == sorted(arrivals_ns(workload))
    assert max(arrivals_ns(workload)) < 600 * 10**9
    counts = Counter(clients(workload))
    assert counts["chunk-1"] / 600 == pytest.approx(10, rel=0.05)
    assert counts["chunk-2"] / 600 == pytest.approx(5, rel=0.07)


def test_lengths_are_those_of_each_clients_own_distributions() -> None:
    workload = servegen()
    inputs, names = np.array(input_lens(workload)), np.array(clients(workload))
    assert set(inputs[names == "chunk-2"]) == {7}
    assert set(inputs[names == "chunk-1"]) == {10, 20}
    assert (inputs[names == "chunk-1"] == 20).mean() == pytest.approx(0.75, abs=0.03)
    assert set(np.array(output_lens(workload))[names == "chunk-1"]) == {3}


def test_a_window_without_a_distribution_is_silent() -> None:
    assert set(clients(servegen(start_s=600.0))) == {"chunk-2"}


def test_lengths_change_with_the_window() -> None:
    workload = servegen(start_s=1200.0, clients=[1])
    assert set(input_lens(workload)) == {99}
    assert set(output_lens(workload)) == {4, 5}
    assert len(workload.requests) / 600 == pytest.approx(20, rel=0.06)  # Weibull, mean 0.042 * gamma(1 + 1/0.75) s


def test_time_counts_from_the_start_asked_for() -> None:
    whole, part = servegen(), servegen(start_s=100.0, duration_s=200.0)
    expected = [time - 100 * 10**9 for time in arrivals_ns(whole) if 100 * 10**9 <= time < 300 * 10**9]
    assert arrivals_ns(part) == pytest.approx(expected, abs=1)


def test_another_client_leaves_the_first_as_it_is() -> None:
    alone, both = servegen(clients=[1]), servegen()
    of_first = [spec.arrival_ns for spec in both.requests if spec.client == "chunk-1"]
    assert arrivals_ns(alone) == of_first


def test_rate_scale_multiplies_the_rate() -> None:
    assert len(servegen(rate_scale=3.0).requests) == pytest.approx(3 * 15 * 600, rel=0.03)


def test_first_prompts_only() -> None:
    assert servegen(num_prompts=5).requests == servegen().requests[:5]


def test_input_files_are_two_for_each_client() -> None:
    config = ServeGenConfig(kind="servegen", path="servegen", duration_s=1.0, clients=(2,))
    assert [path.name for path in workload_files(config, TINY)] == ["chunk-2-trace.csv", "chunk-2-dataset.json"]


def test_missing_folder_and_client_are_named() -> None:
    with pytest.raises(ConfigError, match=r"workload.path: .* has no chunk-N-trace.csv"):
        servegen(path="nowhere")
    with pytest.raises(ConfigError, match=r"workload.clients: .*chunk-9-trace.csv does not exist; clients here: 1, 2"):
        servegen(clients=[9])


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("chunk-1-trace.csv", "0,10,1,Pareto,1,1\n", "line 1: pattern is 'Pareto'; expected Weibull, Gamma"),
        ("chunk-1-trace.csv", "0,10,1,Gamma,0,1\n", "line 1: shape and scale should be greater than 0"),
        ("chunk-1-trace.csv", "0,10,1,Gamma\n", "line 1: 4 fields, expected 6"),
        ("chunk-1-trace.csv", "0,-10,1,Gamma,1,1\n", "line 1: rate is '-10'; expected a number, 0 or more"),
        ("chunk-1-dataset.json", "{", "not a ServeGen dataset"),
        ("chunk-1-dataset.json", "{}", "has no lengths"),
        ("chunk-1-dataset.json", '{"0": {"input_tokens": "__import__(1)"}}', "input_tokens is no mapping of lengths"),
        ("chunk-1-dataset.json", '{"0": {"input_tokens": "{}"}}', "input_tokens is no mapping of lengths"),
    ],
)
def test_bad_file_is_named(tmp_path: Path, file: str, text: str, message: str) -> None:
    folder = tmp_path / "servegen"
    shutil.copytree(TINY / "servegen", folder)
    (folder / file).write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        servegen(path=str(folder))
    assert str(caught.value).startswith(str(folder / file))


def test_real_clients_send_at_their_measured_rates() -> None:
    path = real_trace("servegen/m-small")
    workload = servegen(path=path, duration_s=60.0, clients=[12, 14])
    rates = {name: count / 60 for name, count in Counter(clients(workload)).items()}
    assert rates["chunk-12"] == pytest.approx(62.8, rel=0.1)
    assert len(workload_files(ServeGenConfig(kind="servegen", path=path, duration_s=1.0), TINY)) == 12
