"""What crumb serve says when it is asked wrongly, and that asking costs nothing."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from crumb.cli import main

TRAIN = ["--train", "train.csv", "--target", "animal"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--train and --target, or --state"),
        (["--train", "train.csv"], "--train and --target go together"),
        ([*TRAIN, "--keep-plans"], "--state"),
        ([*TRAIN, "--port", "http"], "--port"),
    ],
)
def test_wrong_usage(words, told, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["serve", *words])
    assert stop.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--state", "empty"], "There is no snapshot in empty"),
        ([*TRAIN, "--deadline", "0"], "deadline must be a positive number"),
        ([*TRAIN, "--max-bytes", "0"], "max_bytes must be at least 1"),
        ([*TRAIN, "--token-file", "blank"], "no token in the first line of blank"),
        ([*TRAIN, "--token-file", "nowhere"], "No such file or directory: nowhere"),
        ([*TRAIN, "--refresh", "daily"], "refresh must be one of"),
        ([*TRAIN, "--quantiles", "0.5"], "--quantiles are for regression"),
        ([*TRAIN, "--target", "animals"], "did you mean 'animal'"),
    ],
)
def test_one_sentence(words, told, folder, crumb):
    (folder / "blank").write_text("\n")
    status, out, err = crumb("serve", "--port", 0, *words)
    assert (status, out) == (1, "")
    assert told in err
    assert "Traceback" not in err


def test_a_port_that_is_taken_shows_before_the_long_work(folder, crumb):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, err = crumb("serve", *TRAIN, "--port", port)
    assert status == 1
    assert err == f"crumb: error: Cannot serve at 127.0.0.1, port {port}: Address already in use.\n"


def test_without_the_extra():
    code = "import sys; sys.modules['fastapi'] = None\nfrom crumb.cli import main\n"
    code += "raise SystemExit(main(['serve', '--state', 'x']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == "crumb: error: crumb serve needs fastapi: pip install 'crumb-pfn[serve]'.\n"
    )
