"""Simulate a configuration: its figures, its requests as a DataFrame, and its latency distributions as a picture."""

import twinserve

run = twinserve.simulate("smoke")  # or the path of a YAML file, or a mapping

print(run)  # the table of `vllm bench serve`
print(f"p99 TTFT {run.result['p99_ttft_ms']:.1f} ms, p99 TPOT {run.result['p99_tpot_ms']:.1f} ms")

# The same figures by hand, from one row per request; times are in milliseconds.
requests = run.requests
print(requests[["request_id", "prompt_len", "output_len", "ttft_ms", "tpot_ms", "e2el_ms"]].head())
print(requests[["ttft_ms", "tpot_ms", "e2el_ms"]].quantile(0.99))

run.plot_cdf("smoke_cdf.png")
print("picture in smoke_cdf.png")
