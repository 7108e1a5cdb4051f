"""Predictions for a stream of queries: the paper's Algorithm 2, CRUMB-Online."""

from crumb.online.drift import Drift
from crumb.online.observer import Observer, Stats
from crumb.online.stream import CrumbOnline
from crumb.online.version import Answer

__all__ = ["Answer", "CrumbOnline", "Drift", "Observer", "Stats"]
