"""The routes of the service: a FastAPI application around one ``Service``.

pydantic checks the bodies, with models made from the training columns; FastAPI describes them.
"""

import asyncio
import time
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from crumb import __version__
from crumb.serve import infer_v2, models
from crumb.serve.body import JsonRoute
from crumb.serve.docs import docs_page
from crumb.serve.history import History
from crumb.serve.metrics import CONTENT_TYPE, Metrics
from crumb.serve.page import PAGE, live
from crumb.serve.projection import Projection
from crumb.serve.refusal import Refusal, shown
from crumb.serve.service import Service
from crumb.serve.watch import Watch

SAID = {
    400: "No JSON, or not of the right form.",
    401: "No valid token.",
    404: "No such model.",
    408: "The body did not arrive in time.",
    413: "Too many rows or bytes.",
    415: "Not application/json.",
    422: "Names, types, shapes or missing values that do not fit the training table.",
    503: "Full, shutting down, or the model failed: try again after Retry-After seconds.",
    504: "No answer within the deadline.",
}
OF_A_BODY = (400, 408, 413, 415, 422, 503, 504)
OF_A_MODEL = (404, 422)
# Nothing from elsewhere, and nobody frames the page.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-ancestors 'none'"
)


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": models.Error, "description": SAID[status]} for status in statuses}


def make_app(service: Service, metrics: Metrics, history: History, *, learn: bool = False) -> Watch:
    """Watched from outside: what FastAPI answers to a fault of ours is seen too."""
    app = FastAPI(
        title=f"CRUMB: {service.name}",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        responses=_errors(401),
        dependencies=[Depends(HTTPBearer(auto_error=False))] * (service.limits.token is not None),
    )
    app.router.route_class = JsonRoute
    app.state.service = service
    _answer_errors(app, service)
    _add_predict(app, service)  # first, since routes are tried in order
    if learn:
        _add_learn(app, service)
    _add_model(app, service)
    _add_health(app, service)
    _add_pages(app, service, metrics, history)
    metrics.watch(service)
    return Watch(app, service.limits, metrics, history)


def _answer_errors(app: FastAPI, service: Service) -> None:
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        path, said = shown(request.url.path), error.detail
        if isinstance(error, Refusal):
            request.state.reason = error.reason
        elif error.status_code == 404:
            said = f"There is nothing at {path}."
        elif error.status_code == 405:
            said = f"{path} does not take {shown(request.method)}."
        return JSONResponse({"error": said}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> Response:
        errors = error.errors()
        if errors[0]["loc"][0] == "path":
            asked, there = shown(errors[0]["input"]), shown(service.name)
            said = f"There is no model {asked}; there is {there}."
            return await refused(request, Refusal(404, "model", said))
        return await refused(request, models.refusal(errors, error.body, service.schema))

    @app.exception_handler(Exception)
    async def fault(request: Request, _: Exception) -> Response:
        return JSONResponse({"error": "The service made a mistake; its log says where."}, 500)


def _example(content: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"example": content}}}}


def _add_predict(app: FastAPI, service: Service) -> None:
    body_type: Any = models.predict_request(service.schema, service.max_rows)
    prediction = service.outputs.model(service.stream.current.classes)
    example = {"records": [service.schema.example()]}

    @app.post(
        "/predict",
        summary="Predict (plain JSON)",
        response_model=models.predict_response(prediction),
        responses=_errors(*OF_A_BODY),
        openapi_extra=_example(example),
    )
    async def predict(body: body_type, request: Request) -> Any:
        answers = await service.ask(request, body.records, body.deadline)
        return {
            "model": service.name,
            "plan_version": answers[0].version,
            "predictions": [service.outputs.record(answer) for answer in answers],
        }


def _add_learn(app: FastAPI, service: Service) -> None:
    labels = service.stream.snapshot().pool.y[:1]
    body_type: Any = models.learn_request(service.schema, service.max_rows, labels)
    classes = service.stream.current.classes
    label = [0.0] if classes is None else classes[:1].tolist()
    example = {"records": [service.schema.example()], "labels": label}

    @app.post(
        "/learn",
        summary="Labelled rows for the next refresh",
        response_model=models.Waiting,
        responses=_errors(*OF_A_BODY),
        openapi_extra=_example(example),
    )
    async def learn(body: body_type, request: Request) -> Any:
        return {"waiting": await service.learn(request, body.records, body.labels)}


def _add_health(app: FastAPI, service: Service) -> None:
    name_type: Any = _name(service)
    down: dict[int | str, Any] = {503: {"description": SAID[503], "model": dict[str, str | bool]}}

    def health(**about: str) -> Response:
        return JSONResponse({**about, "ready": service.ready}, 200 if service.ready else 503)

    @app.get("/v2", summary="What this server is")
    async def server() -> dict[str, Any]:
        return {"name": "crumb", "version": __version__, "extensions": []}

    @app.get("/v2/health/live", summary="Whether the process lives")
    async def alive() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready", summary="Whether requests are taken", responses=down)
    async def ready() -> Response:
        return health()

    @app.get(
        "/v2/models/{name}/ready",
        summary="Whether the model answers",
        responses={**down, **_errors(*OF_A_MODEL)},
    )
    async def model_ready(name: name_type) -> Response:
        return health(name=name)


def _name(service: Service) -> Any:
    """The name of the model, as it stands in a path."""
    return Annotated[Literal[service.name], Path(examples=[service.name])]


def _add_model(app: FastAPI, service: Service) -> None:
    name_type: Any = _name(service)
    metadata, outputs = "Inputs and outputs of the model", service.outputs

    @app.get("/v2/models/{name}", summary=metadata, responses=_errors(*OF_A_MODEL))
    async def model(name: name_type) -> dict[str, Any]:
        version = service.stream.current
        tensors = outputs.tensors(version.classes)
        return infer_v2.metadata(name, version.number, service.schema, tensors)

    @app.post(
        "/v2/models/{name}/infer",
        summary="Predict (Open Inference Protocol v2)",
        response_model=infer_v2.InferenceResponse,
        response_model_exclude_unset=True,
        responses=_errors(*OF_A_BODY, *OF_A_MODEL),
        openapi_extra=_example(infer_v2.example(service.schema)),
    )
    async def infer(name: name_type, body: infer_v2.InferenceRequest, request: Request) -> Any:
        wanted = infer_v2.wanted_outputs(body, outputs.tensors(service.stream.current.classes))
        records = infer_v2.read_records(body.inputs, service.schema, service.max_rows)
        deadline = None if body.parameters is None else body.parameters.deadline
        answers = await service.ask(request, records, deadline)
        return infer_v2.write_inference(name, body.id, wanted, answers, outputs)


def _add_pages(app: FastAPI, service: Service, metrics: Metrics, history: History) -> None:
    projection = Projection(service.stream)
    one_at_a_time = asyncio.Lock()

    def page(content: str) -> Response:
        return HTMLResponse(content, headers={"Content-Security-Policy": POLICY})

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return page(PAGE)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        return page(docs_page(service.name, app.openapi(), base))

    @app.get("/live", summary="What the page shows")
    async def lively() -> dict[str, Any]:
        async with one_at_a_time:
            drawn = await asyncio.to_thread(projection.view)
        return {**live(service, time.time()), **history.view(), "map": drawn}

    @app.get("/metrics", summary="For Prometheus", response_class=PlainTextResponse)
    async def measured() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)
