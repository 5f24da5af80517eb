"""Find a token budget in simulation, then run the same configuration on the GPU, if there is one."""

import twinserve

BUDGET = "engine.max_num_batched_tokens"

sweep = twinserve.sweep({"name": "budgets", "base": "smoke", "matrix": {BUDGET: [64, 128, 256, 512]}})
print(sweep.table[[BUDGET, "p99_ttft_ms", "p99_itl_ms", "output_throughput"]])
sweep.plot("budgets.png")

best = sweep.table.sort_values("p99_itl_ms").iloc[0]
print(f"least p99 ITL: {best['p99_itl_ms']:.1f} ms with {best[BUDGET]} tokens per step; picture in budgets.png")

# Random weights of the model's size are enough to measure it: the configuration says `load_format: dummy`.
try:
    real = twinserve.run("smoke", set={BUDGET: int(best[BUDGET])}, backend="real")
except twinserve.ConfigError as error:
    print(f"not confirmed on a GPU: {error}")
else:
    print(f"on the GPU: p99 ITL {real.result['p99_itl_ms']:.1f} ms")
