"""The application on other streams: numbers, quantiles, labels only, passes that fail."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import httpx
import numpy as np
import pandas as pd
import pytest
import streams
from sklearn.linear_model import LinearRegression
from sklearn.svm import LinearSVC

from crumb import CrumbOnline, CrumbRegressor
from crumb.serve.app import make_app
from crumb.serve.page import History
from crumb.serve.schema import Schema
from crumb.serve.service import Service
from crumb.serve.watch import Metrics

SETTINGS = {"n_clusters": 2, "context_size": 30}


def regressor(model="embedded") -> CrumbRegressor:
    X, _ = streams.table()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(
        when=pd.date_range("2024-01-01", periods=len(X))
    )
    return CrumbRegressor(model=model, **SETTINGS).fit(frame, X[:, 0] - X[:, 1])


@contextmanager
def asking(estimator, X, **settings):
    """A function that sends one request to an application around a stream."""
    metrics = Metrics()
    with CrumbOnline(estimator, timeout=0, observer=metrics, **settings) as stream:
        service = Service(stream, Schema.of(X))

        def ask(method: str, path: str, **more) -> httpx.Response:
            async def go() -> httpx.Response:
                transport = httpx.ASGITransport(make_app(service, Metrics(), History()))
                async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
                    return await http.request(method, path, **more)

            return asyncio.run(go())

        yield ask, stream


def training_frame() -> pd.DataFrame:
    X, _ = streams.table()
    return pd.DataFrame(X, columns=list("abcd")).assign(
        when=pd.date_range("2024-01-01", periods=len(X))
    )


RECORD = {"a": 0.5, "b": -1, "c": 0.0, "d": 1.0, "when": "2024-03-01T00:00:00Z"}


def test_numbers_and_dates():
    with asking(regressor(), training_frame()) as (ask, stream):
        answer = ask("POST", "/predict", json={"records": [RECORD, {**RECORD, "a": 2}]}).json()
        rows = pd.DataFrame([RECORD, {**RECORD, "a": 2}]).assign(when=pd.Timestamp("2024-03-01"))
        wanted = stream.estimator.predict(rows, plan=stream.plan)
        np.testing.assert_allclose(
            [each["prediction"] for each in answer["predictions"]], wanted, atol=1e-5
        )
        assert ask("GET", "/v2/models/crumb").json()["outputs"] == [
            {"name": "prediction", "datatype": "FP64", "shape": [-1]}
        ]
        alone = ask("POST", "/predict", json={"records": [RECORD]}).json()
        assert alone["predictions"][0]["prediction"] == pytest.approx(wanted[0], abs=1e-5)


def test_quantiles():
    with asking(regressor(), training_frame(), output="quantiles", quantiles=[0.1, 0.9]) as (
        ask,
        _,
    ):
        answer = ask("POST", "/predict", json={"records": [RECORD]}).json()["predictions"][0][
            "quantiles"
        ]
        assert list(answer) == ["0.1", "0.9"]
        assert answer["0.1"] <= answer["0.9"]
        output = ask("GET", "/v2/models/crumb").json()["outputs"][0]
        assert (output["name"], output["shape"]) == ("quantiles", [-1, 2])


def test_labels_of_a_model_without_probabilities():
    X, _ = streams.table()
    with asking(streams.cheap(LinearSVC()), X) as (ask, stream):
        row = {str(i): float(value) for i, value in enumerate(X[0])}
        answer = ask("POST", "/predict", json={"records": [row]}).json()["predictions"]
        assert answer == [{"label": int(stream.estimator.predict(X[:1], plan=stream.plan)[0])}]
        tensor = {"name": "all", "datatype": "FP64", "shape": [1, 4], "data": X[:1].tolist()}
        outputs = ask("POST", "/v2/models/crumb/infer", json={"inputs": [tensor]}).json()["outputs"]
        assert [output["name"] for output in outputs] == ["label"]


def test_a_pass_that_fails_is_no_fault_of_the_service():
    streams.reset_gate(opened=True)
    streams.Gate.broken = True
    X, _ = streams.table()
    with asking(streams.cheap(streams.Gate()), X) as (ask, _):
        row = {str(i): float(value) for i, value in enumerate(X[0])}
        answer = ask("POST", "/predict", json={"records": [row]})
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "1"
        assert answer.json() == {
            "error": "The model could not answer these rows (MemoryError): try again later."
        }
        streams.Gate.broken = False
        assert ask("POST", "/predict", json={"records": [row]}).status_code == 200
    streams.reset_gate(opened=True)


def test_what_nobody_foresaw_is_answered_and_says_nothing(monkeypatch):
    monkeypatch.setattr("crumb.serve.app.live", lambda *_: 1 / 0)
    with asking(regressor(LinearRegression()), training_frame()) as (ask, _):
        answer = ask("GET", "/live")
    assert (answer.status_code, answer.json()) == (
        500,
        {"error": "The service made a mistake; its log says where."},
    )
