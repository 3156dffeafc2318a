"""Pods from a URL: asked with an ETag, kept when it says nonsense, and guarded as webhooks are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventbus.agent.config.http_source import ALLOW_HOSTS, HttpSource, open_http_source
from eventbus.agent.config.manifest import MAX_BYTES
from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.pods.updates import Op, PodUpdate
from eventbus.errors import ConfigError
from tests.support.webhook_server import Answer, Delivery, Endpoint, receiving

MANIFEST = "{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: m, command: [/bin/true]}]}}"


class Site(Endpoint):
    """A server that answers what it is told to; *status* 0: it hangs up."""

    def __init__(self) -> None:
        super().__init__()
        self.status, self.body, self.etag, self.location, self.port = 200, MANIFEST % "web", "", "", 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/pods"

    @property
    def asked(self) -> list[str]:
        """Return the ETags that it was asked with."""
        return [delivery.headers.get("if-none-match", "") for delivery in self.deliveries]

    def answer(self, delivery: Delivery) -> Answer:
        self.deliveries.append(delivery)
        same = bool(self.etag) and self.asked[-1] == self.etag
        headers = {name: value for name, value in (("ETag", self.etag), ("Location", self.location)) if value}
        return Answer(304 if same else self.status, headers, b"" if same else self.body.encode())


class World:
    """The source of a site, what it tells the loop and what it calls invalid."""

    def __init__(self, site: Site) -> None:
        self.updates: list[PodUpdate] = []
        self.invalid: list[str] = []
        self.source: HttpSource = open_http_source(
            PodConfig(self.updates.append),
            site.url,
            node="n1",
            invalid=lambda _where, problem: self.invalid.append(problem),
            environ={ALLOW_HOSTS: "127.0.0.1"},
        )

    def ask(self) -> list[tuple[Op, list[str]]]:
        self.source.ask()
        found = [(one.op, [pod.metadata.name for pod in one.pods]) for one in self.updates if one.pods]
        self.updates.clear()
        return found


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    with receiving(site) as site.port:
        yield site


@pytest.fixture
def world(site: Site) -> Iterator[World]:
    made = World(site)
    yield made
    made.source.stop(5)


def test_what_has_not_changed_is_not_sent_again(site: Site, world: World) -> None:
    site.etag = '"one"'
    assert world.ask() == [(Op.ADD, ["web-n1"])]
    assert world.ask() == []
    site.etag, site.body = '"two"', MANIFEST % "other"
    assert world.ask() == [(Op.REMOVE, ["web-n1"]), (Op.ADD, ["other-n1"])]
    assert site.asked == ["", '"one"', '"one"']


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, "no"), (404, ""), (200, ""), (200, "#" * MAX_BYTES), (302, MANIFEST % "elsewhere")],
    ids=["error", "missing", "empty", "too-long", "redirect"],
)
def test_a_site_that_answers_badly_takes_no_pod_away(site: Site, world: World, status: int, body: str) -> None:
    world.ask()
    site.status, site.body, site.location = status, body, site.url if status == 302 else ""
    assert world.ask() == []
    assert len(site.asked) == 2, "a redirect is not followed"
    site.status, site.body = 200, MANIFEST % "web"
    assert world.ask() == [], "it is the same pod still"


def test_nonsense_is_told_once_and_keeps_the_pods(site: Site, world: World) -> None:
    world.ask()
    site.body = "{kind: Pod, apiVersion: v1, metadata: {name: Bad}, spec: {}}"
    assert (world.ask(), world.ask()) == ([], [])
    assert len(world.invalid) == 1


def test_a_site_that_is_away_takes_no_pod_away(site: Site, world: World) -> None:
    world.ask()
    site.status = 0
    assert world.ask() == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/pods",
        "https://example.com:9000/pods",
        "https://127.0.0.1/pods",
        "https://169.254.169.254/latest",
        "https://me:secret@example.com/pods",
        "file:///etc/pods",
    ],
)
def test_a_url_that_webhooks_may_not_use_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--manifest-url") as refused:
        open_http_source(PodConfig(lambda _: None), url, node="n1", invalid=lambda *_: None, environ={})
    assert "secret" not in str(refused.value)
    assert "webhook" not in str(refused.value).lower()
