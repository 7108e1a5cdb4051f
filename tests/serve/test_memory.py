"""Memory that was freed leaves the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import re, threading
from crumb.serve.process import few_arenas, trim
few_arenas()
size = lambda: int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])
pieces = [bytearray(50_000) for _ in range(2_000)]
kept, pieces = pieces[-1], None  # what lies above the hole keeps it from being given back
full = size()
trim()
print(full - size())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_trim_gives_memory_back():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50_000  # kB
