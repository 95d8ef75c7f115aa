"""The memory gateway as an ASGI application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel

from kernel_gamma.errors import TruthError
from kernel_gamma.gateway.approval_routes import add_approval_routes
from kernel_gamma.gateway.bounds import Bounds
from kernel_gamma.gateway.context_routes import add_context_routes
from kernel_gamma.gateway.docs_page import docs_page
from kernel_gamma.gateway.event_routes import add_event_routes
from kernel_gamma.gateway.forms import UPSERT_MODELS
from kernel_gamma.gateway.guard import Guard, check_token
from kernel_gamma.gateway.head import HeadAsGet
from kernel_gamma.gateway.metrics import Counting, Metrics
from kernel_gamma.gateway.mind_routes import add_mind_routes
from kernel_gamma.gateway.ports import GatewayPorts, Lanes, StrictRoute
from kernel_gamma.gateway.problems import JsonAnswer, Problem, handle_problems, problem, responses
from kernel_gamma.gateway.truth_routes import add_truth_routes

__all__ = ["build_app"]

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health(BaseModel):
    """It lives, and the store can be read."""

    status: str
    version: str


def build_app(ports: GatewayPorts, bounds: Bounds | None = None) -> FastAPI:
    """The application. Raises SettingsError when it would be open to other machines without a token.

    `app.state.lanes.closing` is to be set before the server stops.
    """
    check_token(ports.settings.gateway, ports.token)
    app = FastAPI(
        title="Kernel-γ memory gateway",
        version=ports.version,
        description="Stored truths and their retrieval, events for the mind, and what the mind wrote.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    lanes = Lanes()
    metrics = Metrics(ports.status, ports.truths.categories)
    app.state.lanes = lanes
    app.router.route_class = StrictRoute
    add_truth_routes(app.router, ports, lanes)
    add_event_routes(app.router, ports, lanes)
    add_mind_routes(app.router, ports, lanes)
    add_context_routes(app.router, ports, lanes)
    add_approval_routes(app.router, ports, lanes)
    _add_health(app, ports, lanes, metrics)
    _add_docs(app, ports)
    handle_problems(app)
    app.add_middleware(Guard, settings=ports.settings.gateway, token=ports.token, bounds=bounds or Bounds())
    app.add_middleware(Counting, metrics=metrics, clock=ports.clock)
    app.add_middleware(HeadAsGet)
    return app


def _add_health(app: FastAPI, ports: GatewayPorts, lanes: Lanes, metrics: Metrics) -> None:
    health: Any = {200: {"model": Health, "description": "OK"}, **responses(503)}

    @app.get("/healthz", tags=["gateway"], response_model=None, responses=health)
    async def healthz() -> Response:
        """Whether it lives and the store can be read. Asks for no token."""
        try:
            await lanes.read(ports.truths.categories)
        except TruthError as error:
            return problem(503, str(error))
        return JsonAnswer({"status": "ok", "version": ports.version})

    told: Any = {
        200: {"description": "Prometheus", "content": {"text/plain": {"schema": {"type": "string"}}}}
    }

    @app.get("/metrics", tags=["gateway"], response_class=Response, responses={**told, **responses(503)})
    async def get_metrics() -> Response:
        """Counters and gauges for Prometheus."""
        return Response(await lanes.read(metrics.text), 200, {"Content-Type": _METRICS_TYPE})


def _add_docs(app: FastAPI, ports: GatewayPorts) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _openapi(app, with_token=ports.token is not None)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    async def get_openapi_json() -> Response:
        return JSONResponse(openapi())

    @app.get("/docs", include_in_schema=False)
    async def get_docs() -> Response:
        policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(docs_page(openapi()), headers=policy)


def _openapi(app: FastAPI, *, with_token: bool) -> dict[str, Any]:
    """What FastAPI gathers, with the problems, and the token where one is asked for."""
    schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = schema.setdefault("components", {})
    models = components.setdefault("schemas", {})
    own = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    models.update(own.pop("$defs", {}))
    models["Problem"] = own
    models.update(UPSERT_MODELS)
    if with_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
        schema["paths"]["/healthz"]["get"]["security"] = []
    else:
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("401", None)
    return schema
