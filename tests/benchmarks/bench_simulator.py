"""Throughput of the simulator's event loop on a trace.

``python -m tests.benchmarks.bench_simulator TRACE.jsonl [--times 10]``

One JSON object per line: ``timestamp`` (ms), ``input_length``, ``output_length``. Settings: budget 512, 512 sequences,
blocks of 16, 27,000 blocks, prefix caching and recorder on, step time max(15, 5 + 0.08 * tokens) ms. ``--times N``
repeats the trace N times, one after the other. Times are wall clock and CPU time of the event loop alone.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time  # noqa: TID251 - a benchmark measures

from tests.builders import make_engine
from twinserve.run_core.record import RunRecord
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sim_backend.driver import simulate
from twinserve.sim_backend.linear import LinearCostModel, LinearTerms

NS_PER_MS = 1_000_000


def read_trace(path: Path, times: int) -> list[RequestSpec]:
    """Every request has a prompt of its own: the benchmark times scheduling, not cache hits."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    span = rows[-1]["timestamp"] + rows[-1]["timestamp"] / len(rows)
    return [
        RequestSpec(
            request_id=turn * len(rows) + i,
            prompt=Prompt.of_stream(turn * len(rows) + i, row["input_length"]),
            max_tokens=row["output_length"],
            arrival_ns=round((turn * span + row["timestamp"]) * NS_PER_MS),
        )
        for turn in range(times)
        for i, row in enumerate(rows)
    ]


def simulate_trace(specs: Sequence[RequestSpec]) -> tuple[RunRecord, float, float]:
    """The record, wall seconds and CPU seconds of one run."""
    engine = make_engine(num_blocks=27_000, max_num_batched_tokens=512, max_num_seqs=512, max_model_len=1_000_000)
    cost = LinearCostModel(LinearTerms(base_ms=5.0, per_token_ms=0.08, floor_ms=15.0))
    wall, cpu = perf_counter(), process_time()
    record = simulate(Session(engine, Traffic(specs)), cost).complete()
    return record, perf_counter() - wall, process_time() - cpu


def report(record: RunRecord, wall: float, cpu: float) -> str:
    num_requests, num_steps = len(record.requests["request_id"]), len(record.steps["step_id"])
    num_rows = sum(record.steps["num_rows"])
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{num_requests:,} requests, {num_steps:,} steps, {num_rows:,} rows: {wall:.2f} s wall, {cpu:.2f} s CPU\n"
        f"  per CPU second: {num_requests / cpu:,.0f} requests, {num_steps / cpu:,.0f} steps, "
        f"{num_rows / cpu:,.0f} rows\n"
        f"  peak memory {peak_mb:,.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--times", type=int, default=1, help="also run the trace this many times over")
    arguments = parser.parse_args()
    record, wall, cpu = simulate_trace(read_trace(arguments.trace, 1))
    print(report(record, wall, cpu))  # noqa: T201 - a script's output
    if arguments.times > 1:
        del record
        many, many_wall, many_cpu = simulate_trace(read_trace(arguments.trace, arguments.times))
        print(report(many, many_wall, many_cpu))  # noqa: T201 - a script's output
        print(f"  {arguments.times} times the requests cost {many_cpu / cpu:.2f} times the CPU time")  # noqa: T201


if __name__ == "__main__":
    main()
