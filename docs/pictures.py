"""Takes the pictures of the page in docs/pictures, of the demo's data: `make pictures`. Needs Chromium."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from eventbus import Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from examples.demo.__main__ import OPTIONS, PROGRAMS, environment_of, start_program, start_workers
from examples.demo.processes import Process, Processes
from examples.demo.screen import Screen

FOLDER = Path(__file__).parent / "pictures"
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
#: Name → query of the page, width in pixels, color scheme.
PICTURES = {
    "overview": ("", 1280, "light"),
    "overview-dark": ("", 1280, "dark"),
    "overview-1920-light": ("", 1920, "light"),
    "overview-1920-dark": ("", 1920, "dark"),
    "story": ("", 1280, "light"),
    "story-dark": ("", 1280, "dark"),
    "health": ("?view=health", 1280, "dark"),
    "health-light": ("?view=health", 1280, "light"),
    "notifications": ("?view=notifications", 1280, "light"),
    "notifications-dark": ("?view=notifications", 1280, "dark"),
    "notifications-phone": ("?view=notifications", 360, "light"),
    "notifications-phone-dark": ("?view=notifications", 360, "dark"),
    "phone": ("", 360, "light"),
    "phone-dark": ("", 360, "dark"),
    "health-phone": ("?view=health", 360, "light"),
    "health-phone-dark": ("?view=health", 360, "dark"),
}
#: The rules of the notifier, and the port of its receiver, `examples.notify.catcher`.
RULES = """
route: {{receiver: chat, group_by: [namespace, kind, name], group_wait: 0s, routes: [
  {{receiver: duty, matchers: ['kind="Node"']}}]}}
receivers:
- {{name: chat, webhook_configs: [{{url: "http://127.0.0.1:{port}/chat"}}]}}
- {{name: duty, webhook_configs: [{{url: "http://127.0.0.1:{port}/duty"}}]}}
"""
CATCHER_PORT = 18099
#: Longest wait for the demo or the worker, in seconds.
PATIENCE_S = 240.0
#: Time for parts that load later: the chart, the counts.
SETTLE_MS = 3000


def main() -> None:
    """Play the demo's programs on a server of its own, and take the pictures of their page."""
    folder = Path(tempfile.mkdtemp(prefix="eventbus-pictures-"))
    server, screen = EmbeddedServer(folder / "server"), Screen()
    children: Processes | None = None
    try:
        url = server.start()
        bus = open_bus(url, Settings(), options=OPTIONS)
        client = bus.client(name="eventbus-pictures")
        environment = environment_of(url) | {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}
        children = Processes(folder, environment)
        start_workers(screen, children, bus, client, folder / "events.jsonl")
        children.start("worker-lifecycle", "-m", "eventbus", "worker", "lifecycle")
        children.start("worker-agent", "-m", "eventbus", "worker", "agent")
        (folder / "rules.yaml").write_text(RULES.format(port=CATCHER_PORT))
        children.start("catcher", "-m", "examples.notify.catcher", str(CATCHER_PORT))
        children.start("worker-notify", "-m", "eventbus", "worker", "notify", "--rules", str(folder / "rules.yaml"))
        silence = (
            "silence",
            "add",
            "namespace=demo",
            "name=not-installed",
            "--for",
            "2h",
            "--comment",
            "it is installed tomorrow",
        )
        children.start("silence", "-m", "eventbus", *silence)
        api = children.start("worker-api", "-m", "eventbus", "worker", "api", "--listen", "127.0.0.1:0")
        programs = [start_program(screen, children, name) for name in PROGRAMS]
        wait_for(lambda: all(program.exit_code is not None for program in programs))
        client.close()
        take(address_of(api))
    finally:
        if children is not None:
            children.stop()
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def take(address: str) -> None:
    """Write one picture for each of PICTURES, with a headless Chromium."""
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(ARGUMENTS))
        for name, (asked, width, scheme) in PICTURES.items():
            height = 640 if width < 400 else 820
            light: Any = scheme
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=light)
            page = context.new_page()
            page.goto(address + asked)
            page.locator("main table tbody tr").first.wait_for(timeout=60_000)
            if name.startswith("story"):  # of the first failing object, which depends on the speed of the machine
                page.locator(".failing tbody a").first.click()
            page.wait_for_timeout(SETTLE_MS)
            page.screenshot(path=FOLDER / f"{name}.png")
            print(f"docs/pictures/{name}.png")
            context.close()
        browser.close()


def address_of(api: Process) -> str:
    """Return the address of the page that the worker prints."""

    def told() -> re.Match[str] | None:
        return re.search(r"the web page is at (\S+)", "\n".join(api.output))

    wait_for(told)
    found = told()
    assert found is not None
    return found[1]


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("pictures: the demo does not come to its end")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
