"""A queue order of one's own, with a parameter, against first come, first served."""

import twinserve
from twinserve.sched_core.policies.order import OrderBase

NS_PER_S = 1_000_000_000


class ShortFirst(OrderBase):
    """Short prompts first, but not for ever: 100 tokens more count like arriving ``penalty_s`` seconds later."""

    def __init__(self, penalty_s=1.0):
        self._penalty_s = penalty_s

    def rank(self, request, now):
        """Requests are taken in ascending order of this."""
        arrival_s = request.spec.arrival_ns / NS_PER_S
        return (arrival_s + self._penalty_s * request.spec.num_prompt_tokens / 100,)


crowded = {"workload.arrival.request_rate": 200.0}
runs = {"fcfs": twinserve.simulate("smoke", set=crowded)}
for penalty_s in (0.02, 0.2):
    order = {"use": ShortFirst, "penalty_s": penalty_s}
    runs[f"penalty {penalty_s} s"] = twinserve.simulate("smoke", set=crowded, policies={"order": order})

for label, run in runs.items():
    ttft = run.requests.ttft_ms
    print(f"{label:>14}: TTFT mean {ttft.mean():6.1f} ms, p99 {ttft.quantile(0.99):6.1f} ms")
twinserve.plot_cdfs(runs, "orders.png")
print("picture in orders.png")
