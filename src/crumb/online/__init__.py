"""Predictions for a stream of queries: frozen plans, buffers, refreshes (the paper's Algorithm 2)."""

from crumb.online.drift import Drift
from crumb.online.observer import Observer
from crumb.online.stream import CrumbOnline, Stats
from crumb.online.version import Answer

__all__ = ["Answer", "CrumbOnline", "Drift", "Observer", "Stats"]
