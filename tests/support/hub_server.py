"""A local server that answers as the Hugging Face Hub does to the requests that huggingface_hub makes for files."""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """Files by name; ``holes`` are files of which only the beginning exists, followed by as many bytes that must never be asked for."""

    files: dict[str, bytes]
    holes: dict[str, int] = field(default_factory=dict)
    gated: bool = False
    token: str | None = None
    ignores_ranges: bool = False


def safetensors(tensors: dict[str, tuple[str, list[int], int]]) -> tuple[bytes, int]:
    """(header, bytes of data) of a file with the given (dtype, shape, bytes) by tensor."""
    listed: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape, size) in tensors.items():
        listed[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    body = json.dumps(listed).encode()
    return struct.pack("<Q", len(body)) + body, offset


class Hub:
    """The server; ``requests`` lists (method, path, range, bytes sent) of everything that was asked."""

    def __init__(self, repositories: dict[str, Repository]) -> None:
        self.repositories = repositories
        self.requests: list[tuple[str, str, str | None, int]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def do_GET(self) -> None:
                hub.answer(self, body=True)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler, *, body: bool) -> None:
        sent = self._answer(handler, body)
        self.requests.append((handler.command, handler.path, handler.headers.get("Range"), sent))

    def _answer(self, handler: BaseHTTPRequestHandler, body: bool) -> int:
        words = handler.path.split("?")[0].strip("/").split("/")
        repository = self.repositories.get("/".join(words[:2]))
        authorised = handler.headers.get("Authorization")
        if repository is None or len(words) < 5 or (repository.token and authorised != f"Bearer {repository.token}"):
            return self._refuse(handler, 401, "RepoNotFound")
        if repository.gated:
            return self._refuse(handler, 403, "GatedRepo")
        if words[3] not in ("main", "v1", COMMIT):
            return self._refuse(handler, 404, "RevisionNotFound")
        content = repository.files.get("/".join(words[4:]))
        if content is None:
            return self._refuse(handler, 404, "EntryNotFound")
        size = len(content) + repository.holes.get("/".join(words[4:]), 0)
        first, last, status = 0, size - 1, 200
        asked = handler.headers.get("Range")
        if asked and not repository.ignores_ranges:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, last, status = int(start), min(int(end or last), last), 206
        handler.send_response(status)
        handler.send_header("X-Repo-Commit", COMMIT)
        handler.send_header("ETag", '"' + hashlib.sha1(content).hexdigest() + '"')
        handler.send_header("Accept-Ranges", "bytes")
        if status == 206:
            handler.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        handler.send_header("Content-Length", str(last - first + 1))
        handler.end_headers()
        return self._send(handler, content, first, last + 1) if body else 0

    def _send(self, handler: BaseHTTPRequestHandler, content: bytes, first: int, end: int) -> int:
        """Holes are sent as zeros, in pieces, until the client hangs up."""
        sent = 0
        try:
            while first < end:
                piece = content[first : min(end, first + (1 << 16))] or bytes(min(1 << 16, end - first))
                handler.wfile.write(piece)
                first += len(piece)
                sent += len(piece)
        except OSError:
            handler.close_connection = True
        return sent

    def _refuse(self, handler: BaseHTTPRequestHandler, status: int, code: str) -> int:
        handler.send_response(status)
        handler.send_header("X-Error-Code", code)
        handler.send_header("X-Error-Message", code)
        handler.send_header("X-Repo-Commit", COMMIT)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return 0
