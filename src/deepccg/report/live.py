"""A report that follows runs: assembled again when their files change, served on this machine."""

import hashlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import NamedTuple, NoReturn

from deepccg.core import DeepCCGError, InputError
from deepccg.records import RecordError, file_stamp, find_run_directories
from deepccg.report.assemble import Known, read_report

LOOPBACK = "127.0.0.1"
LOOK_SECONDS = 1.0  # between two looks at the files
_REST = 4  # how much longer than it works the report at least rests: runs need the processors
_HOSTS = (LOOPBACK, "localhost")
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "frame-ancestors 'none'",  # which a page cannot say in itself
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Version(NamedTuple):
    """A page as it is sent."""

    content: bytes
    tag: str  # another one for another content
    changed: float  # when, in seconds since 1970


class LiveReport:
    """The page of runs that may be learning: ``update`` brings it up to date, where it is not."""

    def __init__(self, paths: Sequence[Path], title: str, memory_images: int) -> None:
        self._paths, self._title, self._memory_images = paths, title, memory_images
        self._known, self._stamps = Known(), _stamps(paths)
        self.version = self._make()

    def update(self) -> None:
        """Assemble the page again if a file of a run changed, or a run came or went.

        What cannot be read now, such as a directory that was just removed, is a warning: the page
        stays as it is.
        """
        try:
            stamps = _stamps(self._paths)
            if stamps == self._stamps:
                return
            version = self._make()
        except (DeepCCGError, RecordError, OSError) as error:
            warnings.warn(str(error), stacklevel=2)
            return
        self._stamps = stamps  # from before the files were read: what changed since is seen again
        if version.tag != self.version.tag:
            self.version = version

    def _make(self) -> Version:
        report = read_report(self._paths, self._known, with_memory=self._memory_images > 0)
        page = report.page(self._title, self._memory_images, live=True)
        content = page.encode(errors="backslashreplace")  # a path may not be UTF-8
        return Version(content, f'"{hashlib.sha256(content).hexdigest()[:32]}"', time.time())


def serve(
    paths: Sequence[Path],
    port: int,
    ready: Callable[[str], None],
    *,
    title: str = "deepccg report",
    memory_images: int = 10,
) -> NoReturn:
    """Serve the page of runs on this machine alone and follow them, until Ctrl-C.

    Args:
        paths: Run directories, ones with runs below, or archives. There may be no run yet.
        port: Where; 0 for one that is free.
        ready: Called with the address once the page can be asked for.
        title: The heading.
        memory_images: How many images of a class a gallery shows at most; 0 for no galleries.
    """
    try:
        server = _Server((LOOPBACK, port), _Handler)
    except OSError as error:
        raise InputError(
            f"cannot listen on port {port}: {error.strerror}; choose another --port, or leave it "
            f"out for one that is free"
        ) from None
    with server:
        server.report = LiveReport(paths, title, memory_images)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            ready(f"http://{LOOPBACK}:{server.server_port}/")
            while True:
                began = time.monotonic()
                server.report.update()
                time.sleep(max(LOOK_SECONDS, _REST * (time.monotonic() - began)))
        finally:
            server.shutdown()


def _stamps(paths: Sequence[Path]) -> list[object]:
    """Return what differs as soon as a file that the page is made of does."""
    return [
        [(run.path, run.stamp) for run in find_run_directories(path)]
        if path.is_dir()
        else file_stamp(path)
        for path in paths
    ]


class _Server(ThreadingHTTPServer):
    report: LiveReport

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without asking the network for this machine's name
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # else a page was closed
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as it came


class _Handler(BaseHTTPRequestHandler):
    """Answers GET of the page, to whoever asks for this machine by one of its own names."""

    server: _Server
    server_version, sys_version = "deepccg", ""
    timeout = 30  # seconds: a connection that says nothing is closed

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")
        if (host[0] or host[2]) not in _HOSTS:  # another site's name that leads here
            self.send_error(HTTPStatus.FORBIDDEN, "Ask for 127.0.0.1 or localhost")
            return
        if self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        version = self.server.report.version
        same = self.headers.get("If-None-Match") == version.tag
        self.send_response(HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("ETag", version.tag)
        self.send_header("Last-Modified", formatdate(version.changed, usegmt=True))
        self.send_header("Content-Length", str(0 if same else len(version.content)))
        self.end_headers()
        if not same:
            self.wfile.write(version.content)

    def log_message(self, *_: object) -> None:
        """Say nothing: a page that is open asks every second."""
