"""The routes of the service: a FastAPI application around one ``Service``.

pydantic checks the bodies, with models made from the training columns; FastAPI describes them.
"""

import asyncio
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from crumb import __version__
from crumb.serve import infer_v2, schema
from crumb.serve.limits import JsonRoute, Refusal, shown
from crumb.serve.page import PAGE, History, Map, commands, live
from crumb.serve.service import Service
from crumb.serve.state import Lesson
from crumb.serve.watch import Gauges, Metrics, Watch

Responses = dict[int | str, dict[str, Any]]
REFUSED: Responses = {"default": {"description": "Why not, in a sentence.", "model": schema.Error}}
DOWN: Responses = {503: {"description": "Shutting down.", "model": dict[str, str | bool]}}
# Nothing from elsewhere, and nobody frames the page.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-ancestors 'none'"
)


def _example(content: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"example": content}}}}


def make_app(service: Service, metrics: Metrics, history: History, *, learn: bool = False) -> Watch:
    """Watched from outside: what FastAPI answers to a fault of ours is seen too."""
    app = FastAPI(
        title=f"CRUMB: {service.name}",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        responses=REFUSED,
        dependencies=[Depends(HTTPBearer(auto_error=False))] * (service.limits.token is not None),
    )
    app.router.route_class = JsonRoute
    app.state.bodies = service.bodies
    _answer_errors(app, service)
    _add_predict(app, service)  # first, since routes are tried in order
    if learn:
        _add_learn(app, service)
    path = f"/v2/models/{service.name}"
    _add_version(app, service, path)
    _add_version(app, service, f"{path}/versions/{{version}}", described=False)
    _add_server(app, service)
    _add_pages(app, service, metrics, history)
    metrics.registry.register(Gauges(service))
    packed = GZipMiddleware(app, minimum_size=1_000, compresslevel=1)
    return Watch(packed, service.limits, metrics, history)


def _answer_errors(app: FastAPI, service: Service) -> None:
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if isinstance(error, Refusal):
            request.state.reason = error.reason
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> Response:
        return await refused(request, schema.refusal(error.errors(), error.body, service.schema))

    @app.exception_handler(Exception)
    async def fault(request: Request, _: Exception) -> Response:
        return JSONResponse({"error": "The service made a mistake; its log says where."}, 500)


def _add_predict(app: FastAPI, service: Service) -> None:
    body_type: Any = schema.predict_request(service.schema, service.max_rows)

    @app.post(
        "/predict",
        summary="Predict (plain JSON)",
        response_model=schema.Predictions,
        response_model_exclude_unset=True,
        openapi_extra=_example({"records": [service.schema.example()]}),
    )
    async def predict(body: body_type, request: Request) -> Any:
        answers = await service.ask(request, body.records, body.deadline)
        return {
            "model": service.name,
            "plan_version": answers[0].version,
            "predictions": [service.outputs.record(answer) for answer in answers],
        }


def _add_learn(app: FastAPI, service: Service) -> None:
    classes = service.stream.current.classes
    body_type: Any = schema.learn_request(service.schema, service.max_rows, service.stream)
    label = [0.0] if classes is None else classes[:1].tolist()

    @app.post(
        "/learn",
        summary="Labelled rows for the next refresh",
        response_model=schema.Waiting,
        openapi_extra=_example({"records": [service.schema.example()], "labels": label}),
    )
    async def learn(body: body_type, request: Request) -> Any:
        lesson = Lesson(body.records, body.labels, await request.body())
        return {"waiting": await service.learn(request, lesson)}


def _health(service: Service, **about: str) -> Response:
    return JSONResponse({**about, "ready": service.ready}, 200 if service.ready else 503)


def _add_server(app: FastAPI, service: Service) -> None:
    @app.get("/v2", summary="What this server is")
    async def server() -> dict[str, Any]:
        return {"name": "crumb", "version": __version__, "extensions": ["binary_tensor_data"]}

    @app.get("/v2/health/live", summary="Whether the process lives")
    async def alive() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready", summary="Whether requests are taken", responses=DOWN)
    async def ready() -> Response:
        return _health(service)


def _check_version(request: Request, number: int) -> None:
    """A plan that was replaced answers no more; without a version the current one does."""
    asked = request.path_params.get("version", str(number))
    if asked != str(number):
        said = f"There is no version {shown(asked)}: version {number} answers."
        raise Refusal(404, "version", said)


def _add_version(app: FastAPI, service: Service, path: str, described: bool = True) -> None:
    outputs = service.outputs

    @app.get(path, summary="Inputs and outputs of the model", include_in_schema=described)
    async def model(request: Request) -> dict[str, Any]:
        version = service.stream.current
        _check_version(request, version.number)
        tensors = outputs.tensors(version.classes)
        return infer_v2.metadata(service.name, version.number, service.schema, tensors)

    @app.get(
        f"{path}/ready",
        summary="Whether the model answers",
        responses=DOWN,
        include_in_schema=described,
    )
    async def ready(request: Request) -> Response:
        _check_version(request, service.stream.version)
        return _health(service, name=service.name)

    @app.post(
        f"{path}/infer",
        summary="Predict (Open Inference Protocol v2)",
        response_model=infer_v2.InferenceResponse,
        response_model_exclude_unset=True,
        openapi_extra=_example(infer_v2.example(service.schema)),
        include_in_schema=described,
    )
    async def infer(body: infer_v2.InferenceRequest, request: Request) -> Any:
        _check_version(request, service.stream.version)
        wanted = infer_v2.wanted_outputs(body, outputs.tensors(service.stream.current.classes))
        records = infer_v2.read_records(body.inputs, service.schema, service.max_rows)
        deadline = None if body.parameters is None else body.parameters.deadline
        answers = await service.ask(request, records, deadline)
        _check_version(request, answers[0].version)  # a new plan may have come meanwhile
        answer = infer_v2.write_inference(service.name, body.id, wanted, answers, outputs)
        return infer_v2.pack(answer, infer_v2.binary_outputs(body, wanted))


def _add_pages(app: FastAPI, service: Service, metrics: Metrics, history: History) -> None:
    drawn, one_at_a_time = Map(service.stream), asyncio.Lock()

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": POLICY})

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        return PlainTextResponse(commands(app.openapi(), base))

    @app.get("/live", summary="What the page shows")
    async def lively() -> dict[str, Any]:
        async with one_at_a_time:
            seen = await asyncio.to_thread(drawn.view)
        return {**live(service), **history.view(), "map": seen}

    @app.get("/metrics", summary="For Prometheus", response_class=PlainTextResponse)
    async def measured() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)
