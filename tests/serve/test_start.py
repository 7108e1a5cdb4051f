"""How the service starts: what it says meanwhile, and when it does not."""

from __future__ import annotations

import json
import socket

import pytest
import serving
from serving import Server

from crumb.cli import main
from crumb.errors import InvalidInput
from crumb.serve.process import bind


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    with Server(
        *serving.train_words(folder), "--state", folder / "state", *serving.SMALL
    ) as server:
        assert server.stop() == 0
        doing = [event["doing"] for event in server.events("starting")]
        assert [word.split()[0] for word in doing] == ["reads", "encodes", "makes"]
    return folder / "state"


def test_answers_are_sent_at_once():
    """asyncio sets TCP_NODELAY only on connections of a socket that names its protocol."""
    with bind("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("port", [99_999, 65_536, -1])
def test_ports_that_are_none(port, capsys):
    with pytest.raises(InvalidInput, match="from 0 to 65535"):
        bind("127.0.0.1", port)
    assert main(["serve", f"--port={port}", "--state", "nowhere"]) == 1
    assert "from 0 to 65535" in capsys.readouterr().err


def changed(about: dict, **column) -> dict:
    first, *others = about["columns"]
    return {**about, "columns": [{**first, **column}, *others]}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda about: changed(about, name="other"),
        lambda about: changed(about, kind="text", example="text"),
        lambda about: {**about, "columns": about["columns"][1:]},
        lambda about: {**about, "columns": about["columns"][::-1]},
        lambda about: {**about, "named": False},
    ],
)
def test_columns_that_do_not_fit_do_not_start(state, wrong, capsys):
    file = state / "columns.json"
    right = file.read_text()
    try:
        file.write_text(json.dumps(wrong(json.loads(right))))
        assert main(["serve", "--port", "0", "--state", str(state)]) == 1
    finally:
        file.write_text(right)
    assert "columns.json does not fit the table" in capsys.readouterr().err


def test_a_warning_beyond_this_machine(state, capsys):
    """Without a token anybody may use it; it is said before the long work."""
    file = state / "columns.json"
    right = file.read_text()
    file.write_text("{}")  # so that it ends
    try:
        for host, warned in (("0.0.0.0", True), ("127.0.0.1", False)):
            assert main(["serve", "--host", host, "--port", "0", "--state", str(state)]) == 1
            assert ("sets a token" in capsys.readouterr().err) is warned
    finally:
        file.write_text(right)
