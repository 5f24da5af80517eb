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
# This notebook reads result folders only. They are `token_budget/` and `long_prefill/` in the folder named by the
# environment variable `TWINSERVE_RESULTS`; what is missing there is simulated first, by the command shown below.
# Without the variable a temporary folder is used.

# %%
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
from IPython.display import Image, display

from twinserve.experiments.plots import plot_compare_cdfs, plot_run, plot_sweep
from twinserve.experiments.plots.folder import swept_keys
from twinserve.experiments.store.sweep_folder import read_summary

RESULTS = Path(os.environ.get("TWINSERVE_RESULTS") or tempfile.mkdtemp(prefix="twinserve-"))
FIGURES = Path(tempfile.mkdtemp(prefix="twinserve-figures-"))

POLICY = "engine.policy"
BUDGET = "engine.max_num_batched_tokens"
CHUNKED = "engine.enable_chunked_prefill"
THRESHOLD = "engine.long_prefill_token_threshold"
TAILS = ["p99_ttft_ms", "p99_tpot_ms", "p99_itl_ms"]


def results_of(name: str) -> pd.DataFrame:
    """The summary of the packaged sweep `name`, which is run where it is missing (`twinserve sweep`)."""
    folder = RESULTS / name
    if not (folder / "summary.csv").exists():
        command = ["sweep", f"sweeps/{name}", "--out", str(folder), "--no-plots", "--no-progress"]
        subprocess.run([sys.executable, "-m", "twinserve", *command], check=True)
    return read_summary(folder)


def show(paths: list[Path]) -> None:
    for path in paths:
        display(Image(filename=str(path), width=500))


# %% [markdown]
# ## The budget, for each policy, with chunked prefill and without
#
# Without chunking a prompt runs in one piece, so that a budget below the longest prompt would refuse some requests;
# only budgets that hold every prompt can be compared.

# %%
budgets = results_of("token_budget")
budgets.pivot_table(index=BUDGET, columns=[CHUNKED, POLICY], values=TAILS).round(0).T

# %%
show(plot_sweep(budgets, swept_keys(budgets), FIGURES / "budget"))

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
same_budget = chunked[chunked[BUDGET] == middle].set_index(POLICY)["run_id"]
runs = {f"{policy}, budget {middle}": RESULTS / "token_budget" / run_id for policy, run_id in same_budget.items()}
show(plot_compare_cdfs(runs, FIGURES / "compare"))

# %% [markdown]
# And over time, for the first of them: what each step held, how full the KV cache was, and who waited.

# %%
show(plot_run(next(iter(runs.values())), FIGURES / "run")[1:])

# %% [markdown]
# ## A cap on one prompt's share of a step
#
# `long_prefill_token_threshold` limits the chunk of a single prompt while others run. Small caps leave room for other
# prompts in the same step and shorten the steps; the capped prompt itself takes more of them.

# %%
caps = results_of("long_prefill")
caps.pivot_table(index=THRESHOLD, columns=BUDGET, values=TAILS).round(0).T

# %%
# one line per cap; budgets run along the axis
show(plot_sweep(caps, swept_keys(caps), FIGURES / "cap", across=BUDGET))
