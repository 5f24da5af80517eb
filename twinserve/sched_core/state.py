"""Everything an engine schedules with, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from twinserve.sched_core.blocks.block_manager import BlockManager
from twinserve.sched_core.blocks.block_pool import BlockPool
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.journal import Journal
from twinserve.sched_core.output_log import OutputLog
from twinserve.sched_core.policies.registry import Policies
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.requests.waiting_queue import WaitingQueue
from twinserve.sched_core.running_table import RunningTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerState:
    """Queue, batch and blocks. ``requests`` holds every unfinished request by id.

    Invariant: a request is in ``requests`` and in exactly one of ``queue`` and ``running``.
    """

    config: SchedulerConfig
    policies: Policies
    journal: Journal
    pool: BlockPool
    blocks: BlockManager
    queue: WaitingQueue
    running: RunningTable
    requests: dict[int, Request]
    outputs: OutputLog

    @classmethod
    def create(cls, config: SchedulerConfig, policies: Policies) -> SchedulerState:
        journal = Journal()
        pool = BlockPool(config.num_blocks, journal)
        blocks = BlockManager(
            pool,
            config.block_size,
            journal,
            caching=config.enable_prefix_caching,
            algorithm=config.prefix_caching_hash_algo,
        )
        return cls(
            config=config,
            policies=policies,
            journal=journal,
            pool=pool,
            blocks=blocks,
            queue=WaitingQueue(journal),
            # A step may admit new rows before the rows it preempted are removed.
            running=RunningTable(2 * config.max_num_seqs, config.block_size, journal),
            requests={},
            outputs=OutputLog(),
        )
