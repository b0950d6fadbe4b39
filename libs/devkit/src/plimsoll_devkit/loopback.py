"""Who answers where the real service is not the point? A server on a loopback port, answering as a test says."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """What a test's handler begins with: it says in ``respond`` what it answers, and logs nothing."""

    def respond(self) -> None:
        """Answer one request, whatever its method."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer."""
        self.respond()

    do_PATCH = do_POST = do_GET  # noqa: N815 - the names are the server's

    def answer(self, status: int, body: bytes) -> None:
        """Send a whole response."""
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: what was asked is for the test to look at."""


@contextmanager
def serving(handler: type[Handler]) -> Iterator[str]:
    """Serve on a free port until the block ends; yields the address, such as ``http://127.0.0.1:34567``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
