"""The Open Inference Protocol as others speak it: tritonclient and kserve, unmodified.

kserve needs an older pandas than this project: ``CRUMB_CLIENTS`` may name another Python that has
the two. What they send is tested without them as well.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import serving
from serving import Server, records

SCRIPT = Path(__file__).parents[1] / "oip_clients.py"
LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clients")
    words = [*serving.train_words(folder), "--timeout", "0.02", "--max-bytes", "300000"]
    with Server(*words, *serving.SMALL) as server:
        yield server
        assert server.stop() == 0


def columns(rows: int) -> dict[str, list]:
    asked = records(rows)
    return {name: [row[name] for row in asked] for name in asked[0]}


def expected(server: Server, rows: int) -> dict[str, list]:
    answers = server.predict(records(rows)).json()["predictions"]
    return {
        "label": [answer["label"] for answer in answers],
        "probabilities": [list(answer["probabilities"].values()) for answer in answers],
    }


def python_with(package: str) -> str:
    if importlib.util.find_spec(package) is not None:
        return sys.executable
    if "CRUMB_CLIENTS" not in os.environ:
        pytest.skip(f"needs {package}: pip install, or name a Python in CRUMB_CLIENTS")
    return os.environ["CRUMB_CLIENTS"]


def run_client(package: str, server: Server, rows: int) -> dict:
    words = [python_with(package), str(SCRIPT), package, server.url.removeprefix("http://")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    asked = json.dumps(columns(rows))
    done = subprocess.run(words, input=asked, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def assert_same(found: dict, wanted: dict) -> None:
    assert found["label"] == wanted["label"]
    np.testing.assert_allclose(found["probabilities"], wanted["probabilities"], atol=1e-6)


@pytest.mark.parametrize("rows", [1, 40])
def test_tritonclient(server, rows):
    found, wanted = run_client("tritonclient", server, rows), expected(server, rows)
    for way in ("plain", "version", "gzip", "deflate"):
        assert_same(found[way], wanted)
    assert found["labels"] == wanted["label"]
    assert found["ready"] == [True] * 3
    assert found["versions"] == [True, False]
    assert "There is no version '99': version 1 answers." in found["error"]


def test_kserve(server):
    found = run_client("kserve", server, 40)
    assert_same(found["plain"], expected(server, 40))
    assert (found["ready"], found["id"]) == ([True] * 3, "seven")


def packed(asked: dict[str, list], **parameters) -> tuple[bytes, int]:
    """A request with binary tensors, as both clients put it together."""
    kinds = {"a": ("FP64", "<f8"), "b": ("FP32", "<f4"), "old": ("BOOL", "?")}
    inputs, tail = [], b""
    for name, values in asked.items():
        if name in kinds:
            datatype, dtype = kinds[name]
            raw = np.array([np.nan if v is None else v for v in values]).astype(dtype).tobytes()
        else:
            texts = [value.encode() for value in values]
            datatype, raw = "BYTES", b"".join(struct.pack("<I", len(t)) + t for t in texts)
        size = {"binary_data_size": len(raw)}
        shape = [len(values)]
        about = {"name": name, "datatype": datatype, "shape": shape, "parameters": size}
        inputs, tail = [*inputs, about], tail + raw
    head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    return head + tail, len(head)


def infer(server: Server, body: bytes, length: int | str, **headers: str):
    headers |= {LENGTH: str(length), "Content-Type": "application/octet-stream"}
    return server.http.post("/v2/models/crumb/infer", content=body, headers=headers)


@pytest.mark.parametrize("pack", [None, "gzip", "deflate"])
def test_the_wire_format(server, pack):
    """Binary in, binary out, whole or compressed."""
    body, length = packed(columns(5), binary_data_output=True)
    coding = {} if pack is None else {"Content-Encoding": pack}
    if pack is not None:
        body = gzip.compress(body) if pack == "gzip" else zlib.compress(body)
    answer = infer(server, body, length, **coding)
    assert answer.status_code == 200, answer.text
    head = int(answer.headers[LENGTH])
    said, tail = json.loads(answer.content[:head]), answer.content[head:]
    label, probabilities = said["outputs"]
    assert "data" not in label
    size = label["parameters"]["binary_data_size"]
    texts, place = [], 0
    while place < size:
        (count,) = struct.unpack_from("<I", tail, place)
        texts.append(tail[place + 4 : place + 4 + count].decode())
        place += 4 + count
    wanted = expected(server, 5)
    assert texts == wanted["label"]
    assert probabilities["parameters"]["binary_data_size"] == len(tail) - size
    found = np.frombuffer(tail[size:], "<f8").reshape(probabilities["shape"])
    np.testing.assert_allclose(found, wanted["probabilities"], atol=1e-6)


def test_large_bodies_take_the_same_way(server):
    """Parsed in another process: the answers are the same."""
    asked = columns(40)
    asked["city"] = [city + "x" * 4_000 for city in asked["city"]]  # beyond the small ones
    body, length = packed(asked)
    assert len(body) > 2**17
    answer = infer(server, body, length)
    assert answer.status_code == 200, answer.text
    rows = [dict(zip(asked, row, strict=True)) for row in zip(*asked.values(), strict=True)]
    wanted = [p["probabilities"]["cat"] for p in server.predict(rows).json()["predictions"]]
    found = np.reshape(answer.json()["outputs"][1]["data"], (40, 2))[:, 0]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_wrong_binary_bodies(server):
    body, length = packed(columns(3))
    for content, said in (
        (body[:-1], "sizes"),
        (body + b"x", "belong to no tensor"),
        (body.replace(b'"FP64"', b'"FP99"'), "unknown"),
        (body.replace(b'"FP64"', b'"INT8"'), "24 values, its shape [3] says 3"),
    ):
        answer = infer(server, content, length)
        assert answer.status_code in (400, 422), answer.text
        assert said in answer.json()["error"]
    for wrong in (len(body) + 1, -1, "x", length - 1):
        assert infer(server, body, wrong).status_code == 400
    bomb = gzip.compress(b" " * 50_000_000)
    answer = infer(server, bomb, 10, **{"Content-Encoding": "gzip"})
    assert answer.status_code == 413
    for content in (b"no gzip", gzip.compress(body)[:-9]):
        answer = infer(server, content, length, **{"Content-Encoding": "gzip"})
        assert answer.status_code == 400
    assert infer(server, body, length, **{"Content-Encoding": "br"}).status_code == 415


def test_answers_are_compressed_for_clients_that_ask(server):
    asked = {"records": records(40)}
    packed = server.http.post("/predict", json=asked, headers={"Accept-Encoding": "gzip"})
    plain = server.http.post("/predict", json=asked, headers={"Accept-Encoding": "identity"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert packed.json() == plain.json()
