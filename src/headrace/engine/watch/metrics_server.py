"""The metrics page over HTTP, for this machine only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.errors import EnvironmentProblem

__all__ = ["MetricsServer"]

PATH = "/metrics"
# A page of another site that got the name of its host to mean this machine would ask under its own name.
_HOSTS = frozenset({"127.0.0.1", "localhost"})


class MetricsServer:
    """Serves what `page` gives at http://127.0.0.1:PORT/metrics until it is closed."""

    def __init__(self, port: int, page: Callable[[], str]) -> None:
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(page))
        except OSError as error:
            raise EnvironmentProblem(
                f"the metrics page cannot have port {port}: {error.strerror or error}; "
                "set engine: {metrics: 0} for any free one"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="headrace-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{PATH}"

    def close(self) -> None:
        """Ends it and gives the port back."""
        self._server.shutdown()
        self._server.server_close()


def _handler(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "headrace", ""

        def do_GET(self) -> None:
            if (self.headers.get("Host") or "").partition(":")[0] not in _HOSTS:
                self._answer(403, "this page is for this machine\n")
            elif self.path.partition("?")[0] != PATH:
                self._answer(404, f"metrics are at {PATH}\n")
            else:
                self._answer(200, page())

        def _answer(self, code: int, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nobody wants a line per scrape."""

    return Handler
