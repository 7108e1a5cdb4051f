"""crumb models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_models_says_what_is_here_and_where_the_rest_would_go(crumb, tmp_path, monkeypatch):
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path))
    (tmp_path / "tabicl-classifier-v2-20260212.ckpt").write_bytes(b"weights")
    status, out, _ = crumb("models", "--json")
    answer = json.loads(out)
    assert status == 0
    assert answer["model_dir"] == str(tmp_path)
    found = {(model["model"], model["task"]): model for model in answer["models"]}
    assert found["embedded", "classification"]["present"]
    assert Path(found["embedded", "regression"]["file"]).is_file()
    assert found["tabicl-v2", "classification"]["present"]
    assert not found["tabicl-v2", "regression"]["present"]
    assert found["tabicl-v2", "regression"]["file"] == str(
        tmp_path / "tabicl-regressor-v2-20260212.ckpt"
    )
    assert found["tabpfn-v2", "classification"]["licence"]
    assert found["tabpfn-v2", "classification"]["window"] == 10_000
    assert found["embedded-0.1", "regression"]["cost"] == 1
    assert found["tabpfn-v3.5", "regression"]["cost"] > found["tabpfn-v3", "regression"]["cost"] > 1
    assert found["tabpfn-v3.5", "regression"]["licence"] == "Prior Labs, non-commercial"


def test_models_prints_a_line_a_model(crumb):
    from crumb.pfn.models import CARDS

    _, out, _ = crumb("models")
    lines = out.splitlines()
    assert lines[0].split() == ["model", "task", "window", "cost", "licence", "present", "file"]
    assert [line.split()[:2] for line in lines[1 : len(CARDS) + 1]] == [
        [c.name, c.task] for c in CARDS
    ]


def test_models_needs_no_torch():
    code = "import sys; from crumb.cli import main; main(['models']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_get_shows_the_model_and_its_licence(crumb):
    status, out, _ = crumb("models", "--get", "embedded-0.1")
    assert status == 0
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [
        ["embedded-0.1", "classification"],
        ["embedded-0.1", "regression"],
    ]
    assert all("BSD-3-Clause" in line and " yes " in line for line in lines[1:3])
    assert lines[3] == ""
    assert lines[4].startswith("window: ")


def test_get_says_in_one_line_why_not(crumb, tmp_path, monkeypatch):
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    status, out, err = crumb("models", "--get", "tabpfn-v1")
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert "pip could not fetch the source distribution pfns==0.3.0" in err
    assert list(tmp_path.iterdir()) == []
    status, _, err = crumb("models", "--get", "tabpfn-v9")
    assert status == 1
    assert "Unknown model 'tabpfn-v9': choose one of embedded" in err
