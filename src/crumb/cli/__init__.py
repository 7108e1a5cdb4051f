"""The ``crumb`` command. Heavy imports wait until a command runs, so ``--help`` is quick."""

from __future__ import annotations

import _thread
import argparse
import gc
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from functools import cache
from types import FrameType

from crumb import __version__
from crumb.cli.console import complain, note
from crumb.cli.options import COMMANDS, add_command

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 (it failed), 2 (wrong usage) or 130 (Ctrl-C)."""
    # Torch's threads spin while they wait for each other, which is ruinous on a busy machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    args = build_parser().parse_args(argv)
    debug = bool(os.environ.get("CRUMB_DEBUG"))
    sys.unraisablehook = _never_swallow_interrupts
    if argv is None:
        signal.signal(signal.SIGINT, _interrupt_between_imports)
    with warnings.catch_warnings():
        if not debug:
            _warn_in_one_line()
        try:
            args.run(args)
            sys.stdout.flush()
        except KeyboardInterrupt:
            print("crumb: interrupted", file=sys.stderr, flush=True)
            if argv is None:
                # Everything is cleaned up. Leave now: a second Ctrl-C would end in a traceback, and
                # Python may still count the first one as unhandled if it came during an import.
                os._exit(INTERRUPTED)
            return INTERRUPTED
        except BrokenPipeError:  # `crumb … | head`: the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as error:
            if debug:
                raise
            complain(error)
            return 1
        finally:
            if argv is None:  # the process ends: searching torch for garbage takes seconds
                gc.freeze()
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="crumb",
        description="Small, distribution-matched contexts for tabular foundation models.",
        epilog="CRUMB_DEBUG=1 shows the traceback of an error.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"crumb {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        add_command(commands, name)
    return parser


def _interrupt_between_imports(number: int, frame: FrameType | None) -> None:
    """Ctrl-C during an import waits for its end: the C++ code of torch would abort the process."""
    files = (one.f_code.co_filename for one, _ in traceback.walk_stack(frame))
    if any("importlib._bootstrap" in file for file in files):
        _interrupt_soon()
    else:
        signal.default_int_handler(number, frame)


def _interrupt_soon() -> None:
    threading.Timer(0.1, _thread.interrupt_main).start()


def _never_swallow_interrupts(failure: sys.UnraisableHookArgs) -> None:
    """Python prints and forgets a Ctrl-C inside a destructor; raise it again a moment later."""
    if isinstance(failure.exc_value, KeyboardInterrupt):
        _interrupt_soon()
    else:
        sys.__unraisablehook__(failure)


def _warn_in_one_line() -> None:
    """Show warnings for users as notes, and no deprecations inside other packages."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("default", UserWarning)
    once = cache(note)  # of a plan and of the predictions with it
    warnings.showwarning = lambda message, *_, **__: once(str(message))
