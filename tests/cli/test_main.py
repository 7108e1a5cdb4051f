"""The crumb command itself: help, usage, interruption, warnings."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cli_tables import make_table, predict_args

from crumb.cli import main


def test_help_is_quick_and_names_every_command():
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "crumb", "--help"], capture_output=True, text=True)
    assert time.perf_counter() - started < 2  # 0.1 s on an idle machine
    assert done.returncode == 0
    for command in ("demo", "predict", "plan", "serve", "models"):
        assert command in done.stdout


def test_building_the_parser_imports_nothing_heavy():
    code = (
        "import sys; from crumb.cli import build_parser; build_parser();"
        "heavy = {'torch', 'sklearn', 'pandas', 'numpy', 'matplotlib', 'tqdm'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version(capsys):
    from crumb import __version__

    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"crumb {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["predict"], "--train"),
        ([*predict_args(), "--context-size", "many"], "'many'"),
        ([*predict_args(), "--n-clusters", "0.5"], "'0.5'"),
        ([*predict_args(), "--bandwidth", "wide"], "'wide'"),
        ([*predict_args(), "--quantiles", "0.1,2"], "'0.1,2'"),
        ([*predict_args(), "--tas", "regression"], "--tas"),  # no guessing of shortened options
    ],
)
def test_wrong_usage_exits_with_2(argv, told, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    assert told in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "crumb", "models"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.fixture
def long_work(folder):
    """A command that runs for a minute unless it is interrupted, and an older output."""
    make_table(4_000, 0).to_csv("train.csv", index=False)
    make_table(3_000, 1).to_csv("test.csv", index=False)
    Path("out.csv").write_text("older")
    yield [*predict_args(), "--strategy", "full", "--n-estimators", "32"]
    assert Path("out.csv").read_text() == "older"
    assert sorted(path.name for path in folder.iterdir()) == ["out.csv", "test.csv", "train.csv"]


def test_interrupting_while_the_libraries_load_leaves_nothing_behind(long_work):
    process = subprocess.Popen(
        [sys.executable, "-m", "crumb", *long_work],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "classification" in process.stderr.readline()  # the tables are read
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "crumb: interrupted"
    assert "Traceback" not in err


def test_an_interrupt_waits_for_the_end_of_an_import(tmp_path):
    press = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(0.3); end = 1"
    (tmp_path / "slow.py").write_text(press)
    script = f"""
import signal, sys, time
from crumb.cli import _interrupt_between_imports
signal.signal(signal.SIGINT, _interrupt_between_imports)
sys.path.insert(0, {str(tmp_path)!r})
try:
    import slow
    for _ in range(300):  # it comes between two sleeps, and does not wake one
        time.sleep(0.1)
except KeyboardInterrupt:
    print(slow.end)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.stdout == "1\n", run.stderr


def test_interrupting_while_the_network_runs_leaves_nothing_behind(long_work, crumb, monkeypatch):
    from crumb.pfn.base import NetworkBackend

    predict_context = NetworkBackend.predict_context
    press = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))

    def interrupted_soon(*args, **kwargs):
        press.start()  # a second pass would be an error: a thread starts once
        return predict_context(*args, **kwargs)

    monkeypatch.setattr(NetworkBackend, "predict_context", interrupted_soon)
    status, out, err = crumb(*long_work)
    assert status == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "crumb: interrupted"
    assert "Traceback" not in err


def test_an_interrupt_inside_a_destructor_is_not_lost(monkeypatch, capsys):
    class Unlucky:
        def __del__(self):
            raise KeyboardInterrupt

    def run(args):
        unlucky = Unlucky()
        del unlucky
        for _ in range(50):
            time.sleep(0.1)

    monkeypatch.setattr(
        "crumb.cli.build_parser",
        lambda: argparse.Namespace(parse_args=lambda argv: argparse.Namespace(run=run)),
    )
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # pytest's comes back
    started = time.perf_counter()
    assert main([]) == 130
    assert time.perf_counter() - started < 4
    assert capsys.readouterr().err == "crumb: interrupted\n"


def test_warnings_are_notes_of_one_line(crumb, folder):
    status, _, err = crumb(*predict_args(), "--context-size", "5000", "--n-clusters", "1")
    assert status == 0
    assert (
        "crumb: note: context_size=5000 is larger than the pool: all 200 rows are used."
        in err.splitlines()
    )


def test_debug_shows_the_traceback(folder, monkeypatch):
    monkeypatch.setenv("CRUMB_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        main(predict_args(train="nowhere.csv"))


def test_the_process_ends_without_a_search_for_garbage() -> None:
    """Among the objects of torch it takes seconds; nothing that is left needs it."""
    code = (
        "import atexit, gc, sys, crumb.cli as cli\n"
        "atexit.register(lambda: print('kept', gc.get_freeze_count() > 10_000))\n"
        "sys.argv = ['crumb', 'models']\n"
        "sys.exit(cli.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("kept True\n")
