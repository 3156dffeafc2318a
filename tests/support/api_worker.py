"""A worker `eventbus worker api` as a process, and requests to it."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.acceptance.programs import Program, environment
from tests.waiting import eventually

_ANSWERS = re.compile(r"the API answers at (\S+)")
USERS = 'admin-token,admin,1,"system:masters"\nreader-token,reader,2\nnobody-token,nobody,3\n'


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class ApiWorker:
    """A running worker: where it answers, and as whom it is asked."""

    def __init__(self, program: Program, url: str, token: str = "") -> None:
        self.program = program
        self.url = url
        self._token = token

    def connection(self, timeout_s: float = 30) -> http.client.HTTPConnection:
        where = urlsplit(self.url)
        assert where.hostname
        return http.client.HTTPConnection(where.hostname, where.port, timeout=timeout_s)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """*body*: bytes and text as they are, anything else as JSON. Headers by their names with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._token:
            named.setdefault("Authorization", f"Bearer {self._token}")
        data = body if isinstance(body, bytes | str | None) else json.dumps(body)
        connection = self.connection()
        try:
            connection.request(method, path, data, named)
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    @contextmanager
    def watch(self, path: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
        """The frames of a watch that has begun."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._token:
            named.setdefault("Authorization", f"Bearer {self._token}")
        connection = self.connection()
        try:
            connection.request("GET", path, headers=named)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            yield (json.loads(line) for line in answer)
        finally:
            connection.close()


@contextmanager
def api_worker(
    url: str, prefix: str, folder: Path, *options: str, token: str = "", **settings: str
) -> Iterator[ApiWorker]:
    """A worker on a free port of loopback. *token*: as whom it is asked, where there are users."""
    listen = () if "--listen" in options else ("--listen", "127.0.0.1:0")
    env = environment(url, prefix, **settings)
    with Program("worker", "api", *listen, *options, env=env, folder=folder) as program:
        eventually(lambda: _ANSWERS.search(program.err))
        found = _ANSWERS.search(program.err)
        assert found
        yield ApiWorker(program, found[1], token)


def with_users(folder: Path) -> tuple[str, ...]:
    """The options of a worker that knows the users of the vectors."""
    (folder / "tokens.csv").write_text(USERS)
    return "--token-file", str(folder / "tokens.csv"), "--grant", "view=user:reader"


__all__ = ["USERS", "ApiWorker", "Reply", "api_worker", "with_users"]
