"""The routes of the service: a FastAPI application around one ``Service``."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from crumb import __version__
from crumb.serve import infer_v2, predict
from crumb.serve.body import answer, parse
from crumb.serve.history import History
from crumb.serve.limits import Disconnected
from crumb.serve.metrics import CONTENT_TYPE, Metrics
from crumb.serve.openapi import describe, docs_page
from crumb.serve.page import PAGE, STYLE, live
from crumb.serve.projection import Projection
from crumb.serve.refusal import Refusal, invalid, malformed, shown
from crumb.serve.service import Service
from crumb.serve.watch import Watch


def make_app(service: Service, metrics: Metrics, history: History, *, learn: bool = False) -> Watch:
    """Watched from outside: what FastAPI answers to a fault of ours is seen too."""
    app = FastAPI(title="CRUMB", version=__version__, docs_url=None, redoc_url=None)
    app.openapi = lambda: describe(service, learn)  # type: ignore[method-assign]
    _answer_errors(app)
    _add_protocol(app, service)
    _add_predict(app, service)
    if learn:
        _add_learn(app, service)
    _add_pages(app, service, metrics, history, learn)
    metrics.watch(service)
    return Watch(app, service.limits, metrics, history)


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        request.state.reason = error.reason
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        return answer({"error": error.message}, error.status, headers)

    @app.exception_handler(Disconnected)
    async def gone(request: Request, _: Disconnected) -> Response:
        request.state.gone, request.state.reason = True, "disconnected"
        return Response(status_code=400)  # to nobody

    @app.exception_handler(HTTPException)
    async def misdirected(request: Request, error: HTTPException) -> Response:
        path = shown(request.url.path)
        said = {
            404: f"There is nothing at {path}.",
            405: f"{path} does not take {shown(request.method)}.",
        }
        headers = dict(error.headers or {})
        return answer(
            {"error": said.get(error.status_code, str(error.detail))}, error.status_code, headers
        )

    @app.exception_handler(Exception)
    async def fault(request: Request, _: Exception) -> Response:
        return answer({"error": "The service made a mistake; its log says where."}, 500)


def _add_protocol(app: FastAPI, service: Service) -> None:
    def check(name: str) -> None:
        if name != service.name:
            raise Refusal(
                404, "model", f"There is no model {shown(name)}; there is {shown(service.name)}."
            )

    @app.get("/v2")
    async def server() -> Response:
        return answer({"name": "crumb", "version": __version__, "extensions": []})

    @app.get("/v2/health/live")
    async def alive() -> Response:
        return answer({"live": True})

    @app.get("/v2/health/ready")
    async def ready() -> Response:
        return answer({"ready": service.ready}, 200 if service.ready else 503)

    @app.get("/v2/models/{name}")
    async def model(name: str) -> Response:
        check(name)
        tensors = service.outputs.tensors(_classes(service))
        return answer(
            infer_v2.metadata(name, [str(service.stream.version)], service.schema, tensors)
        )

    @app.get("/v2/models/{name}/ready")
    async def model_ready(name: str) -> Response:
        check(name)
        return answer({"name": name, "ready": service.ready}, 200 if service.ready else 503)

    @app.post("/v2/models/{name}/infer")
    async def infer(name: str, request: Request) -> Response:
        check(name)
        content = parse(await service.read(request))
        tensors = service.outputs.tensors(_classes(service))
        asked = infer_v2.read_inference(content, service.schema, tensors, service.max_rows)
        request.state.rows = asked.asked.rows
        answers = await service.ask(request, asked.asked, request.state.came)
        request.state.version = answers[0].version
        return answer(infer_v2.write_inference(service.name, asked, answers, service.outputs))


def _add_predict(app: FastAPI, service: Service) -> None:
    @app.post("/predict")
    async def predicted(request: Request) -> Response:
        content = parse(await service.read(request))
        asked = predict.read_records(content, service.schema, service.max_rows)
        request.state.rows = asked.rows
        answers = await service.ask(request, asked, request.state.came)
        request.state.version = answers[0].version
        return answer(predict.write_predictions(service.name, answers, service.outputs))


def _add_learn(app: FastAPI, service: Service) -> None:
    @app.post("/learn")
    async def learned(request: Request) -> Response:
        content = parse(await service.read(request))
        asked = predict.read_records(content, service.schema, service.max_rows, others=("labels",))
        labels = content.get("labels")
        if not isinstance(labels, list):
            raise malformed('The body needs "labels", a list with one label a record.')
        if len(labels) != asked.rows:
            raise invalid(f"There are {asked.rows} records and {len(labels)} labels.")
        request.state.rows = asked.rows
        return answer({"waiting": await service.learn(asked, labels)})


def _add_pages(
    app: FastAPI, service: Service, metrics: Metrics, history: History, learn: bool
) -> None:
    projection = Projection(service.stream)
    one_at_a_time = asyncio.Lock()

    @app.get("/", response_class=HTMLResponse)
    async def page() -> Response:
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": _POLICY})

    @app.get("/docs", response_class=HTMLResponse)
    async def docs(request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        return HTMLResponse(
            docs_page(service, learn, base, STYLE), headers={"Content-Security-Policy": _POLICY}
        )

    @app.get("/live")
    async def lively() -> Response:
        async with one_at_a_time:
            drawn = await asyncio.to_thread(projection.view)
        return answer({**live(service, time.time()), **history.view(), "map": drawn})

    @app.get("/metrics")
    async def measured() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)


# Nothing from elsewhere, and nobody frames the page.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "frame-ancestors 'none'"
)


def _classes(service: Service) -> Any:
    return service.stream._version.classes
