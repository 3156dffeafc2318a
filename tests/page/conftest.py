"""A real Chromium, a fleet in which something goes wrong, and a page on it that says nothing to its console."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.conftest import IN_CI
from tests.support.api_worker import api_worker
from tests.support.fleet import make_fleet
from tests.waiting import PATIENCE_S

#: Chromium uses only the last list of features, so this one repeats Playwright's.
DISABLED = (
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "LensOverlay"),
    *("HttpsFirstBalancedModeAutoEnable", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled"),
    "PreconnectToSearch",
    # Hidden pages that Chromium loads for the address bar of each window. They cost as much CPU as the tests' pages.
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),
)
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    f"--disable-features={','.join(DISABLED)}",
)

Open = Callable[..., Any]
#: A bound for what hangs; how fast the page is, is measured elsewhere.
PATIENCE_MS = 1_000 * PATIENCE_S
#: What Chromium cuts off requests with when an address of the machine comes or goes, loopback's too.
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"


def chromium() -> str:
    """Where it is: CHROMIUM, or one on PATH. Skips the test without one."""
    found = os.environ.get("CHROMIUM") or next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        reason = "there is no Chromium (Debian: apt install chromium)"
        pytest.fail(f"{reason}; in CI that is a failure", pytrace=False) if IN_CI else pytest.skip(reason)
    return str(found)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """The browser of this folder's tests; not of the run: while it lives, no other event loop runs in this thread."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def bus(embedded_url: str) -> Bus:
    """A bus whose store has the fleet."""
    bus = open_bus(embedded_url, Settings(prefix=f"page-{os.getpid()}"))
    client = bus.client()
    with ObjectStore(bus, client) as store:
        # A little ahead, so that what goes on does so for as long as a busy machine needs for the tests.
        make_fleet(store, datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=10))
    client.close()
    return bus


@pytest.fixture(scope="module")
def url(bus: Bus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with api_worker(bus.url, bus.prefix, tmp_path_factory.mktemp("worker")) as worker:
        yield f"{worker.url}/page/"


@pytest.fixture(scope="module")
def url_with_users(bus: Bus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("users")
    (folder / "tokens.csv").write_text('admin-token,ann,1,"system:masters"\nview-token,vic,2\n')
    users = ("--token-file", str(folder / "tokens.csv"), "--grant", "view=user:vic")
    with api_worker(bus.url, bus.prefix, folder, *users) as worker:
        yield f"{worker.url}/page/"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the views' pictures are left to be looked at: PAGE_PICTURES, or a folder of the run."""
    named = os.environ.get("PAGE_PICTURES")
    folder = Path(named) if named else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def load(page: Any, address: str) -> None:
    """Go to *address*; once more if the machine's network changed meanwhile, as it does when a container starts."""
    from playwright.sync_api import Error

    failed: list[str] = []

    def note(request: Any) -> None:
        failed.append(request.failure or "")

    page.on("requestfailed", note)
    try:
        page.goto(address)
    except Error as error:
        failed.append(str(error))
        if NETWORK_CHANGED not in str(error):
            raise
    finally:
        page.remove_listener("requestfailed", note)
    if any(NETWORK_CHANGED in one for one in failed):
        load(page, address)


def barriers(page: Any) -> list[str]:
    """Return what axe finds; the page is opened with `bypass_csp`."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    nodes = [(one["id"], node) for one in found for node in one["nodes"]]
    return [f"{rule}: {node['html'][:200]} {node['failureSummary'][:300]}" for rule, node in nodes]


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens a page at an address; at the end nothing may have been said on its console, but of an expected status."""
    contexts: list[Any] = []
    said: list[str] = []

    def open_at(address: str, *, width: int = 1280, scheme: str = "light", expected: int = 0, **more: Any) -> Any:
        contexts.append(_window(browser, width, scheme, **more))
        page = contexts[-1].new_page()
        _note_words(page, said, expected)
        load(page, address)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture(scope="package")
def tab(browser: Any) -> Iterator[Any]:
    """The tab of `open_again`. A new window for each test costs twice the CPU."""
    context = _window(browser)
    yield context.new_page()
    context.close()


@pytest.fixture
def open_again(tab: Any) -> Iterator[Open]:
    """Opens a page as `open_page` does, but in a tab that tests share; for tests with one page at a time."""
    said: list[str] = []
    listeners: list[tuple[str, Any]] = []

    def open_at(address: str, *, expected: int = 0) -> Any:
        leave()
        listeners.extend(_note_words(tab, said, expected).items())
        load(tab, address)
        return tab

    def leave() -> None:
        if not listeners:
            return
        while listeners:
            tab.remove_listener(*listeners.pop())
        tab.evaluate("localStorage.clear()")
        tab.context.clear_cookies()
        # Of the same origin: for another one, Chromium starts a process.
        load(tab, urljoin(tab.url, "/page/icon.svg"))

    yield open_at
    leave()
    assert said == []


def _window(browser: Any, width: int = 1280, scheme: str = "light", **more: Any) -> Any:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
    context.set_default_timeout(PATIENCE_MS)
    return context


def _note_words(page: Any, said: list[str], expected: int) -> dict[str, Any]:
    """Append the messages of *page* to *said*. Returns: the listeners, by event."""

    def told(message: Any) -> None:
        # Chromium asks for an icon where the document is not the page, which names its own.
        is_icon = message.location["url"].endswith("/favicon.ico")
        is_expected = expected and f"status of {expected}" in message.text
        if not (is_icon or is_expected or NETWORK_CHANGED in message.text):
            said.append(f"{message.type}: {message.text}")

    listeners = {
        "console": told,
        "pageerror": lambda error: said.append(str(error)),
        "dialog": lambda dialog: said.append(f"dialog: {dialog.message}"),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    return listeners
