"""The gateway as a server: a thread of its own with a loop of its own, in the daemon or alone."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from contextlib import suppress

import uvicorn

from kernel_gamma.errors import SettingsError
from kernel_gamma.gateway.app import build_app
from kernel_gamma.gateway.bounds import BoundedProtocol, Bounds
from kernel_gamma.gateway.guard import SETTINGS_FILE
from kernel_gamma.gateway.ports import GatewayPorts

__all__ = ["GatewayServer"]

_BACKLOG = 256
_START_SEC = 10.0
_GRACE_SEC = 3.0
_KEEP_ALIVE_SEC = 65
_LOOK_EVERY_SEC = 0.005


class GatewayServer:
    """Serves from `start` to `stop`; both may be called from any thread, `stop` more than once."""

    def __init__(self, ports: GatewayPorts, bounds: Bounds | None = None) -> None:
        """Raises SettingsError when other machines could reach it and there is no token."""
        self._settings = ports.settings.gateway
        self._bounds = bounds or Bounds()
        self._app = build_app(ports, self._bounds)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.port = self._settings.port
        """The port it listens at; of a 0 in the settings the real one, once started."""

    @property
    def url(self) -> str:
        """Where it is found from this machine."""
        host = self._settings.host
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> None:
        """Bind, then serve; returns when it answers. Raises SettingsError when the place is not to be had."""
        bound = _bind(self._settings.host, self._settings.port)
        self.port = bound.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            loop="asyncio",
            http=_protocol(self._bounds),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SEC,
            timeout_graceful_shutdown=int(_GRACE_SEC),
        )
        server = self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=_serve, args=(server, bound), name="gateway", daemon=True)
        self._thread.start()
        waited = 0.0
        while not server.started and self._thread.is_alive() and waited < _START_SEC:
            self._thread.join(_LOOK_EVERY_SEC)
            waited += _LOOK_EVERY_SEC
        if not server.started:
            self.stop()
            raise SettingsError(SETTINGS_FILE, "gateway", "the gateway did not start", "its log tells more")

    def stop(self) -> None:
        """Take no more, let running requests finish for a few seconds, end streams."""
        self._app.state.lanes.closing.set()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_GRACE_SEC + 2.0)
            if self._thread.is_alive() and self._server is not None:
                self._server.force_exit = True
                self._thread.join(_GRACE_SEC)


def _protocol(bounds: Bounds) -> type[BoundedProtocol]:
    return type("Protocol", (BoundedProtocol,), {"bounds": bounds})


def _serve(server: uvicorn.Server, bound: socket.socket) -> None:
    with bound:
        asyncio.run(server.serve(sockets=[bound]))


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SettingsError that says which setting to change."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            SETTINGS_FILE,
            "gateway.host",
            f"there is no address {host}: {error}",
            "127.0.0.1 is this machine alone",
        ) from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with suppress(OSError):
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _explained(host, port, error) from error
    return bound


def _explained(host: str, port: int, error: OSError) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return SettingsError(
            SETTINGS_FILE,
            "gateway.port",
            f"port {port} of {host} is in use",
            "end what listens there (another gateway?), or name another: --port or gateway.port; 0: any",
        )
    if error.errno == errno.EACCES:
        return SettingsError(
            SETTINGS_FILE, "gateway.port", f"port {port} is for root only", "set one above 1023"
        )
    return SettingsError(
        SETTINGS_FILE,
        "gateway.host",
        f"cannot listen at {host}: {error.strerror}",
        "use an address of this machine",
    )
