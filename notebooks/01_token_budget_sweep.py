# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How large should a step be?
#
# A step of a serving engine computes at most `max_num_batched_tokens` tokens, the *token budget*. A large budget
# finishes prompts in few steps, which helps the time to first token (TTFT). But every request that is decoding waits
# for the whole step, so a large budget also stretches the gaps between tokens (ITL). Where the balance lies depends
# on how the policy composes a batch, on whether prompts are cut into chunks, and on how much of a step one long
# prompt may take.
#
# The results are in `token_budget/` and `long_prefill/` below the folder named by the environment variable
# `TWINSERVE_RESULTS`; what is missing there is simulated first. Without the variable a temporary folder is used.

# %%
import os
import tempfile
from pathlib import Path

import pandas as pd

import twinserve

RESULTS = Path(os.environ.get("TWINSERVE_RESULTS") or tempfile.mkdtemp(prefix="twinserve-"))

POLICY = "engine.policy"
BUDGET = "engine.max_num_batched_tokens"
CHUNKED = "engine.enable_chunked_prefill"
THRESHOLD = "engine.long_prefill_token_threshold"
TAILS = ["p99_ttft_ms", "p99_tpot_ms", "p99_itl_ms"]


# %% [markdown]
# ## The budget, for each policy, with chunked prefill and without
#
# Without chunking a prompt runs in one piece, so that a budget below the longest prompt would refuse some requests;
# only budgets that hold every prompt can be compared.

# %%
sweep = twinserve.sweep("sweeps/token_budget", out=RESULTS / "token_budget")
budgets = sweep.table
budgets.pivot_table(index=BUDGET, columns=[CHUNKED, POLICY], values=TAILS).round(0).T

# %%
sweep.plot()

# %% [markdown]
# The best budget for each policy, by each tail:

# %%
chunked = budgets[budgets[CHUNKED]]
best = {tail: chunked.loc[chunked.groupby(POLICY)[tail].idxmin()].set_index(POLICY)[BUDGET] for tail in TAILS}
pd.DataFrame(best)

# %% [markdown]
# ## Behind the percentiles
#
# The same budget under each policy, as whole distributions: the tail of the gaps between tokens shows what a p99
# alone cannot, namely how many tokens wait for a prompt.

# %%
middle = sorted(chunked[BUDGET].unique())[len(chunked[BUDGET].unique()) // 2]
same_budget = chunked[chunked[BUDGET] == middle]
runs = {f"{policy}, budget {middle}": sweep.runs[row] for row, policy in same_budget[POLICY].items()}
twinserve.plot_cdfs(runs)

# %% [markdown]
# And over time, for the first of them: what each step held, how full the KV cache was, and who waited.

# %%
first = next(iter(runs.values()))
first.plot_timeline()

# %% [markdown]
# Each table of a run is a DataFrame: its requests, its steps, its tokens. These are the longest gaps between two tokens,
# and how long the steps were that ran then.

# %%
gaps = first.tokens.nlargest(3, "itl_ms")[["request_id", "time_s", "itl_ms"]]
step_of = first.steps.start_s.searchsorted(gaps.time_s) - 1
gaps.assign(step_ms=first.steps.duration_ms.to_numpy()[step_of], tokens=first.steps.num_tokens.to_numpy()[step_of])

# %% [markdown]
# ## A cap on one prompt's share of a step
#
# `long_prefill_token_threshold` limits the chunk of a single prompt while others run. Small caps leave room for other
# prompts in the same step and shorten the steps; the capped prompt itself takes more of them.

# %%
caps = twinserve.sweep("sweeps/long_prefill", out=RESULTS / "long_prefill")
caps.table.pivot_table(index=THRESHOLD, columns=BUDGET, values=TAILS).round(0).T

# %%
# one line per cap; budgets run along the axis
caps.plot(across=BUDGET)
