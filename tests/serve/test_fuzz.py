"""Whatever a client sends: no 500, no hang, no crash.

Schemathesis reads the description, hypothesis invents bodies.
"""

from __future__ import annotations

import json
import socket

import httpx
import pytest
import serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Server, records

FEW = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
DOCUMENTED = {200, 400, 404, 405, 408, 413, 415, 422, 503, 504}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    words = [
        "--timeout",
        "0",
        "--learn",
        "--deadline",
        "10",
        "--max-rows-per-request",
        "5",
        "--log-level",
        "warning",
    ]
    with Server(*serving.train_words(folder), *words, *serving.SMALL) as server:
        yield server
        assert server.predict(records(2)).status_code == 200  # it still answers
        assert server.stop() == 0
        assert server.events("a request failed") == []


CHECKED = (
    "not_a_server_error",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
    "allow_header_conformance",
)
# Which tensors fit the table, and that there is a label for each record, JSON schema cannot say.
LOOSER = {"/v2/models/crumb/infer", "/learn"}


@pytest.fixture(scope="module")
def description(server):
    schemathesis = pytest.importorskip(
        "schemathesis", reason="needs schemathesis (Python 3.11 or newer)"
    )
    refused = {"expected-statuses": ["400", "404", "405", "413", "415", "422"]}
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": refused}})
    return schemathesis.openapi.from_url(server.url + "/openapi.json", config=config)


@pytest.mark.parametrize("kind", ["positive", "negative"])
def test_the_description_holds(description, kind):
    """Answers are as documented; what the description allows is taken, the rest is not."""
    from schemathesis import GenerationMode
    from schemathesis.checks import CHECKS

    mode = GenerationMode(kind)
    operations = [found.ok() for found in description.get_all_operations()]
    assert len(operations) == 10
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.path_parameters):
            continue  # nothing to get wrong
        wanted = [
            name
            for name in CHECKED
            if not (name == "positive_data_acceptance" and operation.path in LOOSER)
        ]
        hold(operation.as_strategy(mode), CHECKS.get_by_names(wanted))


def hold(cases, checks) -> None:
    @settings(
        max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=cases)
    def check(case):
        deadline = case.body.get("deadline") if isinstance(case.body, dict) else None
        if isinstance(deadline, float | int) and deadline > 0:
            del case.body["deadline"]  # 504 is the right answer to 1e-300 seconds
        answer = case.call_and_validate(timeout=20, checks=checks)
        assert answer.status_code in DOCUMENTED

    check()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
keys = (
    st.sampled_from(
        ["a", "b", "old", "city", "records", "inputs", "name", "shape", "data", "datatype"]
    )
    | st.text()
)
record = st.fixed_dictionaries({"a": values, "b": values, "old": values, "city": values})
tensor = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "b", "old", "city", "table"]) | values,
        "shape": st.lists(st.integers(-1, 9), max_size=3) | values,
        "datatype": st.sampled_from(["FP64", "INT8", "BOOL", "BYTES"]) | values,
        "data": st.lists(values, max_size=5) | values,
    },
)
bodies = (
    values
    | st.dictionaries(keys, values, max_size=5)
    | st.fixed_dictionaries(
        {"records": st.lists(record | values, max_size=6)}, optional={"deadline": values}
    )
    | st.fixed_dictionaries(
        {"records": st.lists(record, max_size=2), "labels": st.lists(values, max_size=2) | values}
    )
    | st.fixed_dictionaries(
        {"inputs": st.lists(tensor, max_size=5)},
        optional={
            "id": values,
            "parameters": values,
            "outputs": values | st.lists(st.fixed_dictionaries({"name": values})),
        },
    )
)
paths = st.sampled_from(["/predict", "/v2/models/crumb/infer", "/learn"])


@FEW
@given(path=paths, body=bodies)
def test_json_of_any_form(server, path, body):
    answer = server.http.post(path, content=json.dumps(body), headers=serving.JSON)
    assert answer.status_code in DOCUMENTED - {404, 405, 503}
    assert answer.status_code == 200 or set(answer.json()) == {"error"}


@FEW
@given(
    path=paths,
    body=st.binary(max_size=200),
    kind=st.sampled_from(["application/json", "text/plain", "a/b; c"]),
)
def test_bytes_of_any_form(server, path, body, kind):
    answer = server.http.post(path, content=body, headers={"Content-Type": kind})
    assert answer.status_code in {400, 415}


@FEW
@given(
    cut=st.integers(0, 400),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
)
def test_good_bodies_that_were_damaged(server, cut, flips):
    body = bytearray(json.dumps({"records": records(3)}).encode())
    for place, value in flips:
        body[place % len(body)] = value
    answer = server.http.post(
        "/predict", content=bytes(body[: len(body) - cut]), headers=serving.JSON
    )
    assert answer.status_code in {200, 400, 422}


@FEW
@given(head=st.binary(max_size=300))
def test_what_is_no_http(server, head):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


@FEW
@given(path=st.text(max_size=30))
def test_paths_of_any_form(server, path):
    try:
        answer = server.http.get(f"{server.url}/{path}")
    except (httpx.InvalidURL, UnicodeError):
        return
    assert answer.status_code in {200, 307, 404, 405}
