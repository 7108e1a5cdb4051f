"""Every endpoint of a running service, over real sockets; answers are those of the frozen plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import serving
from serving import Server, frame_of, records

from crumb import CrumbOnline

TOO_DEEP = "Stack overflow" if sys.version_info >= (3, 14) else "maximum recursion depth exceeded"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def server(folder):
    words = [
        "--state",
        folder / "state",
        "--timeout",
        "0.02",
        "--learn",
        "--max-rows-per-request",
        "50",
    ]
    with Server(*serving.train_words(folder), *words, *serving.SMALL) as server:
        yield server
        assert server.stop() == 0
        assert not server.events("a request failed")


@pytest.fixture(scope="module")
def expected(server, folder):
    """What the frozen plan says: from the snapshot that the service wrote at its start."""
    with CrumbOnline.load(folder / "state" / "stream.crumb") as stream:
        yield lambda rows: stream.estimator.predict_proba(frame_of(rows), plan=stream.plan)


def probabilities(answer: dict) -> np.ndarray:
    return np.array(
        [[each["probabilities"][name] for name in ("cat", "dog")] for each in answer["predictions"]]
    )


def tensors(rows: list[dict]) -> list[dict]:
    kinds = {"a": "FP64", "b": "FP32", "old": "BOOL", "city": "BYTES"}
    return [
        {"name": name, "datatype": kind, "shape": [len(rows)], "data": [row[name] for row in rows]}
        for name, kind in kinds.items()
    ]


def test_health_and_metadata(server):
    assert server.http.get("/v2").json()["name"] == "crumb"
    assert server.http.get("/v2/health/live").status_code == 200
    assert server.http.get("/v2/health/ready").json() == {"ready": True}
    assert server.http.get("/v2/models/crumb/ready").json() == {"name": "crumb", "ready": True}
    model = server.http.get("/v2/models/crumb").json()
    assert {tensor["name"]: tensor["datatype"] for tensor in model["inputs"]} == {
        "a": "FP64", "b": "FP64", "old": "BOOL", "city": "BYTES",
    }  # fmt: skip
    assert model["outputs"] == [
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
        {"name": "probabilities", "datatype": "FP64", "shape": [-1, 2]},
    ]


def test_predict_equals_the_frozen_plan(server, expected):
    rows = records(30)
    answer = server.predict(rows).json()
    wanted = expected(rows)
    np.testing.assert_allclose(probabilities(answer), wanted, atol=1e-5)
    assert [each["label"] for each in answer["predictions"]] == np.array(["cat", "dog"])[
        wanted.argmax(1)
    ].tolist()
    assert answer["plan_version"] == 1


def test_infer_equals_the_frozen_plan(server, expected):
    rows = records(10, seed=2)
    body = {"id": "seven", "inputs": tensors(rows)}
    answer = server.http.post("/v2/models/crumb/infer", json=body).json()
    assert (answer["id"], answer["model_name"], answer["parameters"]["plan_version"]) == (
        "seven",
        "crumb",
        1,
    )
    assert json.loads(answer["parameters"]["classes"]) == ["cat", "dog"]
    label, proba = answer["outputs"]
    assert proba["shape"] == [10, 2]
    np.testing.assert_allclose(np.reshape(proba["data"], (10, 2)), expected(rows), atol=1e-5)
    assert label["shape"] == [10]
    only = server.http.post(
        "/v2/models/crumb/infer", json={**body, "outputs": [{"name": "label"}]}
    ).json()
    assert only["outputs"] == [label]


def test_many_clients_at_once_each_get_their_own_answers(server, expected):
    rows = records(200, seed=3)
    wanted, found = expected(rows), np.zeros((200, 2))

    def ask(first: int) -> None:
        for i in range(first, 200, 20):
            found[i] = probabilities(server.predict([rows[i]]).json())[0]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(found, wanted, atol=1e-5)


ROW = {"a": 1.0, "b": None, "old": True, "city": "Rome"}
WRONG = [
    ([{**ROW, "a": "1"}], 422, "Column 'a' of record 0: Input should be a valid number."),
    (
        [ROW, {**ROW, "a": None}],
        422,
        "Column 'a' is missing in record 1, but never was in the training table.",
    ),
    ([{**ROW, "old": 1}], 422, "Column 'old' of record 0: Input should be a valid boolean."),
    (
        [{**ROW, "city": ["Rome"]}],
        422,
        "Column 'city' of record 0: Input should be a valid string.",
    ),
    (
        [{**ROW, "city": "\ud800"}],
        422,
        "Column 'city' of record 0: Input should be a valid string, unable to parse raw data as a "
        "unicode string.",
    ),
    ([{**ROW, "d": 1}], 422, "Column 'd' of record 0: Extra inputs are not permitted."),
    ([{"a": 1.0}], 422, "Column 'b' of record 0: Field required."),
    (["row"], 422, "Record 0: Input should be a valid dictionary."),
    ([], 422, "'records': List should have at least 1 item after validation, not 0."),
    ({"a": [1]}, 400, "'records': Input should be a valid list."),
    ([ROW] * 51, 413, "The request has 51 rows, at most 50 are taken at once."),
]


@pytest.mark.parametrize(("rows", "status", "sentence"), WRONG)
def test_what_is_wrong_is_said_in_one_sentence(server, rows, status, sentence):
    content = json.dumps({"records": rows})  # ASCII: httpx could not encode half a character
    answer = server.http.post("/predict", content=content, headers=serving.JSON)
    assert (answer.status_code, answer.json()) == (status, {"error": sentence})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        (b"\xff\xfe{", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b"[" * 100_000, f"not JSON: {TOO_DEEP}"),
        (b'{"records": [{"a": NaN}]}', "NaN is not JSON: write null"),
        (b'{"records": [{"a": -Infinity}]}', "-Infinity is not JSON"),
        (b'{"records": [{"a": ' + b"1" * 5000 + b"}]}", "not JSON"),
    ],
)
def test_bodies_that_are_no_json(server, body, said):
    answer = server.http.post("/predict", content=body, headers=serving.JSON)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_numbers_beyond_double_precision_are_the_extremes_of_the_pool(server):
    body = b'{"records": [{"a": 1e999, "b": -1e999, "old": false, "city": "Rome"}]}'
    answer = server.http.post("/predict", content=body, headers=serving.JSON)
    assert answer.status_code == 200


def test_wrong_places(server):
    assert server.http.get("/nowhere").json() == {"error": "Not Found"}
    assert server.http.get("/predict").status_code == 405
    assert server.http.get("/v2/models/other").status_code == 404
    assert server.http.post("/v2/models/other/infer", json={}).status_code == 404
    assert (
        server.http.post(
            "/predict", content="a=1", headers={"Content-Type": "text/plain"}
        ).status_code
        == 415
    )


def test_learn_takes_labelled_rows(server):
    rows = records(3)
    answer = server.http.post("/learn", json={"records": rows, "labels": ["cat", "dog", "cat"]})
    assert (answer.status_code, answer.json()) == (200, {"waiting": 3})
    for labels, status in (
        (["cat"], 422),
        ("cat", 400),
        ([1, 2, 3], 422),
        (["cat", None, "dog"], 422),
    ):
        assert (
            server.http.post("/learn", json={"records": rows, "labels": labels}).status_code
            == status
        )


def test_examples_work_as_pasted_and_are_no_training_row(server):
    lines = server.http.get("/docs").text.splitlines()
    commands = [line for line in lines if line.startswith("curl ")]
    assert len(commands) == 10
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command.replace("curl -s", "curl -s --fail-with-body")],
            capture_output=True,
            env=os.environ,
        )
        assert done.returncode == 0, (command, done.stdout)
    described = server.http.get("/openapi.json").json()
    body = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"][
        "example"
    ]
    known = serving.table().drop(columns="animal").to_dict("records")
    assert all(row != body["records"][0] for row in known)
    assert body["records"][0]["city"] in ("Rome", "Oslo", "Lima")


def test_metrics_count(server):
    before = server.metric('crumb_rows_total{outcome="answered"}')
    assert server.predict(records(7)).status_code == 200
    assert server.metric('crumb_rows_total{outcome="answered"}') == before + 7
    assert server.metric("crumb_pass_rows_sum") == server.metric(
        'crumb_rows_total{outcome="answered"}'
    )
    assert server.metric("crumb_wait_seconds_count") == server.metric("crumb_pass_rows_sum")
    assert server.metric("crumb_pass_seconds_count") > 0
    assert server.metric("crumb_queue_rows") == 0
    assert server.metric("crumb_plan_version") == 1
    assert server.metric("crumb_plan_age_seconds") > 0
    assert server.metric('crumb_requests_total{route="/predict",status="200"}') > 0
    server.predict([])
    assert server.metric('crumb_errors_total{reason="invalid"}') > 0
    for name in (
        "crumb_refreshes_total",
        "crumb_drift_score",
        "crumb_buffer_rows",
        "crumb_snapshots_total",
    ):
        server.metric(name)


def test_logs_are_json_and_hold_no_values(server):
    secret = "Zanzibar-4711"
    server.predict([{**ROW, "city": secret}])
    server.predict([{**ROW, "a": secret}])
    server.http.post("/predict", content=f'{{"records": "{secret}', headers=serving.JSON)
    server.http.get(f"/{secret}?{secret}")
    serving.eventually(lambda: len(server.events("request")) >= 4)
    assert secret not in "".join(server.log)
    last = server.events("request")[-1]
    assert {"time", "level", "method", "route", "status", "seconds"} <= set(last)
