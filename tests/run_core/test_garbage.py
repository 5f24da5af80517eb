"""Garbage is collected when asked for, and Python's own collector is as before afterwards."""

from __future__ import annotations

import gc
import weakref

import pytest

from twinserve.run_core.garbage import collected_on_demand


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_cycles_die_when_collection_is_asked_for() -> None:
    with collected_on_demand() as collect:
        assert not gc.isenabled()
        gone = weakref.ref(Node())
        assert gone() is not None
        collect()
        assert gone() is None


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_is_as_before_afterwards_also_after_an_error(was_enabled: bool) -> None:
    (gc.enable if was_enabled else gc.disable)()
    try:
        with pytest.raises(ValueError, match="stop"), collected_on_demand():
            raise ValueError("stop")
        assert gc.isenabled() is was_enabled
        assert gc.get_freeze_count() == 0
    finally:
        gc.enable()
