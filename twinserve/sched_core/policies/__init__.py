"""Scheduling policies: composition, order, token budget, preemption victim and admission."""
