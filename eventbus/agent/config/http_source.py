"""Pods from a URL, requested every 20 s; an unchanged manifest (ETag) is not sent again."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from eventbus.agent.config.file_source import Invalid
from eventbus.agent.config.manifest import MAX_BYTES, read_pods
from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.pods.updates import Source
from eventbus.errors import ConfigError, EventBusError, SinkUnreachable
from eventbus.util.http.guarded_http import GuardedClient
from eventbus.util.http.ssrf import Guard
from eventbus.util.log import log
from eventbus.util.periodic import Periodic

ASK_EVERY_S: Final = 20.0
TIMEOUT_S: Final = 10.0
#: Hosts inside our own network that may be asked, and without TLS.
ALLOW_HOSTS: Final = "EVENTBUS_MANIFEST_ALLOW_HOSTS"
#: Webhooks have this variable for passwords; manifests have none.
_NO_TOKEN: Final = ": EVENTBUS_WEBHOOK_TOKEN is for them"


class HttpSource:
    """Sets the pods of a URL. If the URL is down or its manifest is invalid, the former pods stay.

    Source: kubelet `config/http.go`. Departure: the guards of webhooks, ETag, and no empty answer takes all pods away.
    """

    def __init__(self, config: PodConfig, *, url: str, node: str, client: GuardedClient, invalid: Invalid) -> None:
        config.expect(Source.HTTP)
        self._config = config
        self._url = url
        self._host = urlsplit(url).hostname or ""  # the rest of a URL may be a password
        self._node = node
        self._client = client
        self._invalid = invalid
        self._etag = ""
        self._problem = ""
        self._loop = Periodic(self.ask, every_s=ASK_EVERY_S, name="eventbus-agent-manifests")

    def start(self) -> None:
        self._loop.start()

    def stop(self, timeout_s: float) -> bool:
        ended = self._loop.stop(timeout_s)
        self._client.close()
        return ended

    def ask(self) -> None:
        """Request the manifest once, and set the pods if they changed. Network errors are logged."""
        headers = {"Accept": "application/yaml, application/json", "User-Agent": "eventbus"}
        try:
            reply = self._client.get(
                self._url, headers | ({"If-None-Match": self._etag} if self._etag else {}), MAX_BYTES
            )
            if reply.status == 304 and self._etag:
                return
            if reply.status != 200:
                raise SinkUnreachable(f"answers {reply.status}")
            if not reply.body.strip():
                raise SinkUnreachable("answers with an empty manifest")
            if len(reply.body) >= MAX_BYTES:
                raise SinkUnreachable(f"answers with more than {MAX_BYTES} bytes")
        except SinkUnreachable as error:
            self._report(f"manifests of {self._host}: {error}", is_invalid=False)
            return
        try:
            pods = read_pods(reply.body, f"manifests of {self._host}", node=self._node, source=Source.HTTP)
        except EventBusError as error:
            self._report(str(error), is_invalid=True)
            return
        self._problem = ""
        self._etag = reply.headers.get("etag", "")
        self._config.set(Source.HTTP, pods)

    def _report(self, problem: str, *, is_invalid: bool) -> None:
        if problem != self._problem:
            self._problem = problem
            log.error("%s", problem)
            if is_invalid:
                self._invalid(self._host, problem)


def open_http_source(
    config: PodConfig, url: str, *, node: str, invalid: Invalid, environ: Mapping[str, str]
) -> HttpSource:
    """Return the source of *url*. Raises: ConfigError: the URL is not allowed."""
    names = environ.get(ALLOW_HOSTS, "").split(",")
    guard = Guard(allow_hosts=frozenset(name.strip().lower() for name in names if name.strip()))
    try:
        parts = guard.check_url(url)
        guard.check_name(parts.hostname or "", parts.port or 443)
    except ConfigError as error:
        problem = str(error).replace("EVENTBUS_WEBHOOK_ALLOW_HOSTS", ALLOW_HOSTS).removesuffix(_NO_TOKEN)
        raise ConfigError(f"--manifest-url: {problem.replace('webhook', 'URL of manifests')}") from error
    client = GuardedClient(guard, tls=ssl.create_default_context(), timeout_s=TIMEOUT_S)
    return HttpSource(config, url=url, node=node, client=client, invalid=invalid)
