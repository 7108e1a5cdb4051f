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

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "No JSON, or not of the right form."},
    401: {"description": "No valid token."},
    404: {"description": "No such model."},
    408: {"description": "The body did not arrive in time."},
    413: {"description": "Too many rows or bytes."},
    415: {"description": "Not application/json."},
    422: {"description": "Names, types, shapes or missing values that do not fit the table."},
    503: {"description": "Full, shutting down, or the model failed: see Retry-After."},
    504: {"description": "No answer within the deadline."},
}
for _said in ERRORS.values():
    _said["model"] = models.Error
OF_A_MODEL = {404: ERRORS[404], 422: ERRORS[422]}
OF_A_BODY = {status: said for status, said in ERRORS.items() if status not in (401, 404)}
# Nothing from elsewhere, and nobody frames the page.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-ancestors 'none'"
)


def make_app(service: Service, metrics: Metrics, history: History, *, learn: bool = False) -> Watch:
    """Watched from outside: what FastAPI answers to a fault of ours is seen too."""
    app = FastAPI(
        title=f"CRUMB: {service.name}",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        responses={401: ERRORS[401]},
        dependencies=[]
        if service.limits.token is None
        else [Depends(HTTPBearer(auto_error=False))],
    )
    app.router.route_class = JsonRoute
    app.state.service = service
    _answer_errors(app, service)
    _add_protocol(app, service)
    _add_predict(app, service)
    if learn:
        _add_learn(app, service)
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
            there = (
                f"There is no model {shown(errors[0]['input'])}; there is {shown(service.name)}."
            )
            return await refused(request, Refusal(404, "model", there))
        return await refused(request, models.refusal(errors, error.body, service.schema))

    @app.exception_handler(Exception)
    async def fault(request: Request, _: Exception) -> Response:
        return JSONResponse({"error": "The service made a mistake; its log says where."}, 500)


def _add_protocol(app: FastAPI, service: Service) -> None:
    name_type = Annotated[Literal[service.name], Path(examples=[service.name])]  # type: ignore[name-defined]
    example = {"content": {"application/json": {"example": infer_v2.example(service.schema)}}}

    def health(content: dict[str, Any]) -> Response:
        return JSONResponse(content, 200 if service.ready else 503)

    @app.get("/v2", summary="What this server is")
    async def server() -> dict[str, Any]:
        return {"name": "crumb", "version": __version__, "extensions": []}

    @app.get("/v2/health/live", summary="Whether the process lives")
    async def alive() -> dict[str, bool]:
        return {"live": True}

    @app.get(
        "/v2/health/ready",
        summary="Whether requests are taken",
        responses={503: {"model": dict[str, bool]}},
    )
    async def ready() -> Response:
        return health({"ready": service.ready})

    @app.get("/v2/models/{name}", summary="Inputs and outputs of the model", responses=OF_A_MODEL)
    async def model(name: name_type) -> dict[str, Any]:  # type: ignore[valid-type]
        stream = service.stream
        tensors = service.outputs.tensors(stream.current.classes)
        return infer_v2.metadata(name, stream.version, service.schema, tensors)

    @app.get(
        "/v2/models/{name}/ready",
        summary="Whether the model answers",
        responses={**OF_A_MODEL, 503: {"model": dict[str, str | bool]}},
    )
    async def model_ready(name: name_type) -> Response:  # type: ignore[valid-type]
        return health({"name": name, "ready": service.ready})

    @app.post(
        "/v2/models/{name}/infer",
        summary="Predict (Open Inference Protocol v2)",
        response_model=infer_v2.InferenceResponse,
        response_model_exclude_unset=True,
        responses={**OF_A_BODY, **OF_A_MODEL},
        openapi_extra={"requestBody": example},
    )
    async def infer(name: name_type, body: infer_v2.InferenceRequest, request: Request) -> Any:  # type: ignore[valid-type]
        tensors = service.outputs.tensors(service.stream.current.classes)
        wanted = infer_v2.wanted_outputs(body, tensors)
        records = infer_v2.read_records(body.inputs, service.schema, service.max_rows)
        deadline = None if body.parameters is None else body.parameters.deadline
        answers = await service.ask(request, records, deadline)
        return infer_v2.write_inference(name, body.id, wanted, answers, service.outputs)


def _add_predict(app: FastAPI, service: Service) -> None:
    body_type = models.predict_request(service.schema, service.max_rows)
    prediction = service.outputs.model(service.stream.current.classes)
    example = {"example": {"records": [service.schema.example()]}}

    @app.post(
        "/predict",
        summary="Predict (plain JSON)",
        response_model=models.predict_response(prediction),
        responses=OF_A_BODY,
        openapi_extra={"requestBody": {"content": {"application/json": example}}},
    )
    async def predict(body: body_type, request: Request) -> Any:  # type: ignore[valid-type]
        answers = await service.ask(request, body.records, body.deadline)
        return {
            "model": service.name,
            "plan_version": answers[0].version,
            "predictions": [service.outputs.record(answer) for answer in answers],
        }


def _add_learn(app: FastAPI, service: Service) -> None:
    labels = service.stream.snapshot().pool.y[:1]
    body_type = models.learn_request(service.schema, service.max_rows, labels)
    classes = service.stream.current.classes
    label = [0.0] if classes is None else classes[:1].tolist()
    example = {"example": {"records": [service.schema.example()], "labels": label}}

    @app.post(
        "/learn",
        summary="Labelled rows for the next refresh",
        response_model=models.Waiting,
        responses=OF_A_BODY,
        openapi_extra={"requestBody": {"content": {"application/json": example}}},
    )
    async def learn(body: body_type, request: Request) -> Any:  # type: ignore[valid-type]
        return {"waiting": await service.learn(request, body.records, body.labels)}


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
