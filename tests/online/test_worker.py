"""online/worker.py: real time. The passes are tested through the stream."""

from __future__ import annotations

import threading
import time

from crumb.online.worker import Clock


def test_it_waits_as_long_as_it_is_told_and_no_longer() -> None:
    clock, condition = Clock(), threading.Condition()
    before = clock.now()
    with condition:
        clock.wait(condition, 0.02)
    assert 0.01 < clock.now() - before < 5
    assert abs(clock.date() - time.time()) < 5
