"""A process that computes for this one: at low priority, with one thread, and it can be killed.

A thread would share Python's lock with the threads that answer, and could not be stopped.
``multiprocessing`` would import the main module again and refuse to start from its own children.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import IO, Any, TypeVar

from crumb.errors import StreamClosed

Result = TypeVar("Result")
NICENESS = 10  # of 19: a tenth of a core that others want too, so that no refresh waits for ever
# The modules are those of this process, and none of the folder that it happens to be in.
MAIN = "import sys; sys.path[:] = {!r}; from crumb.online.child import main; main()"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Child:
    """Calls functions of modules in another process, one at a time; started at the first call."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._one_at_a_time, self._closed = threading.Lock(), False
        self._warned: dict[Any, Any] = {}  # so that a warning of every plan is shown once

    def call(self, function: Callable[..., Result], *words: Any) -> Result:
        """What the function returns, or raises, there. Arguments and results go by pickle.

        Its warnings are warnings of this process: the child does not know how they are shown here.
        """
        with self._one_at_a_time:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump((function, words), process.stdin, protocol=5)
                process.stdin.flush()
                good, result, warned = pickle.load(process.stdout)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
                self._end()
                if self._closed:
                    raise StreamClosed("The process that computed this was stopped.") from None
                raise ChildDied("The process that computed this ended.") from error
        for text, category, file, line in warned:
            warnings.warn_explicit(text, category, file, line, registry=self._warned)
        if good:
            return result
        raise result

    def close(self) -> None:
        """Kill it, whatever it is doing; no more calls."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise StreamClosed("The process that computed this was stopped.")
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", MAIN.format(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **ONE_THREAD},
            )
            if self._closed:  # meanwhile
                self._process.kill()
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what was not flushed is lost anyway
                        pipe.close()


class ChildDied(RuntimeError):
    """Killed, or out of memory."""


class ChildBuilder(Child):
    """Computes new plans in a process of its own, which stays for the next one."""

    def warm(self) -> None:
        """Start the process and its imports now: they take seconds that the first plan can save."""
        threading.Thread(target=self._import, name="crumb-warm", daemon=True).start()

    def _import(self) -> None:
        with contextlib.suppress(StreamClosed, ChildDied):
            self.call(exec, "import crumb.online.version")


def main() -> None:
    """The other process: calls what it is asked to call until its input ends."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    with contextlib.suppress(EOFError, BrokenPipeError):  # nobody asks or waits any more
        while True:
            answers.write(_answer(requests))
            answers.flush()


def _answer(requests: IO[bytes]) -> bytes:
    function, words = pickle.load(requests)
    with warnings.catch_warnings(record=True) as caught:
        try:
            good, result = True, function(*words)
        except Exception as error:
            good, result = False, _portable(error)
    warned = [(str(one.message), one.category, one.filename, one.lineno) for one in caught]
    try:
        return pickle.dumps((good, result, warned), protocol=5)
    except Exception as error:
        return pickle.dumps((False, _portable(error), []))


def _portable(error: Exception) -> Exception:
    """An error that can be read on the other side."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
