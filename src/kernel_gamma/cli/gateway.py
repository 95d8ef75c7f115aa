"""`kgamma gateway`: the memory gateway alone, without a mind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

import kernel_gamma
from kernel_gamma.assembly import Assembly
from kernel_gamma.cli.context import assembly_over
from kernel_gamma.cli.home import Place, open_place
from kernel_gamma.cli.memory import memory_file, open_memory
from kernel_gamma.cli.status import status_of
from kernel_gamma.cli.terminal import Failed, HomeOption, Usage, complain, say
from kernel_gamma.cli.trace import journey_of
from kernel_gamma.contracts.envelope import Json
from kernel_gamma.errors import TruthError
from kernel_gamma.gateway.following import follow_pages
from kernel_gamma.gateway.guard import token_of
from kernel_gamma.gateway.ports import GatewayPorts
from kernel_gamma.gateway.server import GatewayServer
from kernel_gamma.mind import Mind
from kernel_gamma.rhythm.ids import UlidIds
from kernel_gamma.self_stream.stream import SelfStream
from kernel_gamma.settings import GatewaySettings
from kernel_gamma.truths.pruning import prune_daily
from kernel_gamma.truths.static.webhook import secret_of
from kernel_gamma.truths.store import SqliteTruths

__all__ = ["app", "serve_mind"]

app = typer.Typer(rich_markup_mode=None)

_PRUNE_LOOK_SEC = 600.0
"""How often it is looked whether the day's pruning is due."""


@app.command()
def gateway(
    host: Annotated[
        str | None,
        typer.Option(metavar="H", help="Where it listens; else gateway.host.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P", min=0, max=65_535, help="0 takes a free one; else gateway.port.", show_default=False
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Serve the memory over HTTP, alone, without a mind.

    Ctrl+C or SIGTERM ends it. Truths lie in memory.db of the data directory. Events that are posted wait in
    the inbox for `kgamma run`. Anything but loopback needs a token (gateway.token_env).
    """
    if host is not None and not host.strip():
        raise Usage("gateway: --host is empty; 127.0.0.1 is this machine alone")
    place = open_place(home)
    settings = place.settings.gateway
    given = {"host": settings.host if host is None else host, "port": settings.port if port is None else port}
    settings = GatewaySettings(**{**settings.model_dump(), **given})
    place = _with_gateway(place, settings)
    token = token_of(settings, place.environ)
    with _until_ended() as ended, open_memory(place, by_meaning=True) as store:
        assembly = assembly_over(place, store)
        server = GatewayServer(_ports(place, store, token, assembly))
        server.start()
        try:
            for line in _banner(place, server.url, with_token=token is not None):
                say(line)
            while not ended.is_set():
                _prune(store, place)
                ended.wait(_PRUNE_LOOK_SEC)
        finally:
            server.stop()


def serve_mind(place: Place, mind: Mind) -> GatewayServer:
    """Serve a mind that lives in this process; started when it returns. Raises SettingsError."""
    token = token_of(place.settings.gateway, place.environ)
    server = GatewayServer(_ports(place, mind.keeping.store, token, mind.assembly))
    server.start()
    return server


def _with_gateway(place: Place, settings: GatewaySettings) -> Place:
    return replace(place, settings=place.settings.model_copy(update={"gateway": settings}))


def _ports(place: Place, store: SqliteTruths, token: str | None, assembly: Assembly) -> GatewayPorts:
    pages = SelfStream(place.self_dir)
    return GatewayPorts(
        truths=store,
        clock=place.clock,
        ids=UlidIds(place.clock),
        settings=place.settings,
        version=kernel_gamma.__version__,
        pages=pages,
        follow=partial(follow_pages, pages),
        status=partial(status_of, place),
        trace=partial(_trace, place),
        assemble=assembly.asked,
        data=place.data,
        token=token,
        changes=assembly.changes,
        approval_secret=secret_of(place.settings.static, place.environ),
    )


def _trace(place: Place, asked: str) -> Mapping[str, Json] | None:
    try:
        found: dict[str, Any] = journey_of(place, asked).as_json()
    except Failed:
        return None
    return found


def _banner(place: Place, url: str, *, with_token: bool) -> list[str]:
    return [
        f"gateway  {url}",
        f"memory   {memory_file(place)}",
        f"docs     {url}/docs",
        *(["token    asked for: Authorization: Bearer …"] if with_token else []),
        "stop     Ctrl+C",
    ]


def _prune(store: SqliteTruths, place: Place) -> None:
    """A store that is full or busy must not end the serving: tomorrow is another day."""
    try:
        gone = prune_daily(store, store.retention, place.clock.now())
    except TruthError as error:
        complain(f"pruning: {error}")
        return
    if gone:
        say("pruned   " + ", ".join(f"{prefix}. {count}" for prefix, count in gone.items()))


@contextmanager
def _until_ended() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set."""
    ended = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
