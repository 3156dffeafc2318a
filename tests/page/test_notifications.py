"""The view of notifications: groups with their state, silences, and the buttons for users with the role edit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.model.kinds import EVENT, SILENCE
from eventbus.model.objects.silence import Silence, SilenceMatcher, SilenceSpec
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.builders import make_event, make_reference
from tests.page.conftest import PATIENCE_MS, Open, barriers, load
from tests.support.api_worker import api_worker
from tests.support.notifying import notifying
from tests.support.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("page")
expect: Any = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE_MS)

HOSTILE = "<img src=x onerror=alert(1)> \u202ereversed\x1b[31m"


def rules_of(port: int) -> str:
    """Rules with a receiver that nobody serves on *port*."""
    return f"""
route: {{receiver: chat, group_by: [namespace, reason], group_wait: 0s, group_interval: 1s, routes: [
  {{receiver: duty, matchers: ['kind="Node"'], continue: true}},
  {{matchers: ['reason="Unhealthy"'], mute_time_intervals: [always]}}, {{receiver: chat}}]}}
time_intervals: [{{name: always, time_intervals: [{{weekdays: ["monday:sunday"]}}]}}]
inhibit_rules:
- {{source_matchers: ['kind="Node"'], target_matchers: ['reason="Evicted"']}}
receivers: [{{name: chat}}, {{name: duty, webhook_configs: [{{url: "http://127.0.0.1:{port}/"}}]}}]
"""


@pytest.fixture(scope="module")
def bus(embedded_url: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=f"notifications-{os.getpid()}"))


@pytest.fixture(scope="module")
def address(bus: Bus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The view, of a bus with a notifier, and Warnings of two namespaces."""
    with ObjectStore.of(bus) as store:
        for kind, namespace, name, reason, message in (
            ("Pod", "shop", "web-0", "BackOff", "back-off 5m0s restarting failed container"),
            ("Pod", "shop", "web-1", "BackOff", HOSTILE),
            ("Pod", "shop", "web-2", "Evicted", "the node was low on memory"),
            ("Pod", "shop", "db-0", "FailedMount", "timed out waiting for the volume"),
            ("Pod", "shop", "web-3", "Unhealthy", "readiness probe failed"),
            ("Pod", "bank", "till-0", "BackOff", "back-off 10s restarting failed container"),
            ("Node", "", "node-1", "NodeNotReady", "silent for 40 s"),
        ):
            about = make_reference(kind=kind, namespace=namespace, name=name)
            now = datetime.now(UTC)
            event = make_event(
                involved_object=about,
                type="Warning",
                reason=reason,
                message=message,
                first_timestamp=now,
                last_timestamp=now,
            )
            store.objects(EVENT).create(event)
        spec = SilenceSpec(
            matchers=(SilenceMatcher("reason", "FailedMount"), SilenceMatcher("name", "db-.*", is_regex=True)),
            starts_at=datetime.now(UTC) - timedelta(minutes=10),
            ends_at=datetime.now(UTC) + timedelta(hours=2),
            created_by="ann",
            comment="the storage is moved",
        )
        store.objects(SILENCE).create(Silence(spec=spec))
    folder: Path = tmp_path_factory.mktemp("users")
    (folder / "tokens.csv").write_text('ann-token,ann,1,"system:masters"\nvic-token,vic,2\ned-token,ed,3\n')
    users = ("--token-file", str(folder / "tokens.csv"), "--grant", "view=user:vic", "--grant", "edit=user:ed@shop")
    with notifying(bus, rules_of(free_port()), "notify-1") as notifier:
        eventually(lambda: notifier.loop_health()[0].gauges.get("groups", 0) >= 7)
        with api_worker(bus.url, bus.prefix, folder, *users) as worker:
            yield f"{worker.url}/page/?view=notifications"


def sign_in(page: Any, user: str) -> None:
    page.get_by_label("Token").fill(f"{user}-token")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Notifications")).to_be_visible()


def group(page: Any, name: str) -> Any:
    return page.get_by_role("table", name="Open groups").locator("tbody tr", has_text=name).first


def test_groups_have_their_state_receiver_and_alerts(address: str, open_again: Open) -> None:
    page = open_again(address, expected=401)
    sign_in(page, "ann")
    expect(page).to_have_title("Notifications · eventbus")
    expect(page.get_by_text("sent by notify-1")).to_be_visible()
    expect(page.get_by_text("duty, webhook[0] fails")).to_be_visible()
    expect(group(page, "Evicted")).to_contain_text("inhibited")
    expect(group(page, "FailedMount")).to_contain_text("silenced")
    expect(group(page, "Unhealthy")).to_contain_text("muted until")
    expect(group(page, "duty")).to_contain_text("webhook[0] fails")
    expect(group(page, "shop reason BackOff")).to_contain_text("firing")
    page.get_by_role("button", name="Show the alerts of shop, BackOff").click()
    alerts = page.locator(".alerts")
    expect(alerts).to_contain_text("back-off 5m0s")
    # The text of an event is text, and shows its control characters.
    expect(alerts).to_contain_text("<img src=x onerror=alert(1)> \\u202ereversed\\x1b[31m")
    expect(page.locator("img")).to_have_count(0)
    alerts.get_by_role("link", name="web-0").click()
    expect(page).to_have_title("Pod/web-0 · eventbus")


def test_a_group_is_silenced_and_the_silence_expired(address: str, open_again: Open) -> None:
    page = open_again(address, expected=401)
    sign_in(page, "ann")
    page.get_by_role("button", name="Silence bank, BackOff to chat").click()
    form = page.get_by_role("dialog", name="New silence")
    expect(form.get_by_label("Label 1")).to_have_value("namespace")
    expect(form.get_by_label("Value 1")).to_have_value("bank")
    expect(form.get_by_label("Value 2")).to_have_value("BackOff")
    expect(form.get_by_label("Comment")).to_be_focused()
    page.keyboard.type("the bank is closed")
    form.get_by_label("For").select_option("4 hours")
    page.keyboard.press("Tab")
    form.get_by_role("button", name="Silence").click()
    expect(page.get_by_role("status").first).to_contain_text("Silenced for 4 hours")
    expect(group(page, "bank")).to_contain_text("silenced")
    silence = page.get_by_role("table", name="Silences").locator("tbody tr", has_text="the bank is closed")
    expect(silence).to_contain_text("reason=BackOff")
    expect(silence).to_contain_text("ann")
    silence.get_by_role("button", name="Expire").click()
    silence.get_by_role("button", name="Expire it now").click()
    expect(silence).to_have_count(0)
    expect(group(page, "bank")).to_contain_text("firing")


@pytest.mark.volume
def test_a_refused_silence_says_why(address: str, open_page: Open) -> None:
    page = open_page(address, expected=4)
    sign_in(page, "ed")
    page.get_by_role("button", name="New silence …").click()
    form = page.get_by_role("dialog", name="New silence")
    expect(form.get_by_label("Value 1")).to_have_value("shop")
    form.get_by_role("button", name="Add a matcher").click()
    form.get_by_label("Label 2").fill("raeson")
    form.get_by_label("Value 2").fill("BackOff")
    form.get_by_label("Comment").fill("no such label")
    form.get_by_role("button", name="Silence").click()
    expect(form.get_by_role("alert")).to_contain_text("did you mean 'reason'")
    form.get_by_role("button", name="Cancel").click()
    expect(form).to_have_count(0)


@pytest.mark.volume
def test_an_editor_of_a_namespace_acknowledges_its_groups(address: str, open_page: Open) -> None:
    page = open_page(address, expected=401)
    sign_in(page, "ed")
    expect(page.get_by_role("table", name="Open groups").locator("tbody th")).to_have_count(4)  # of shop
    expect(page.get_by_text("duty, webhook[0] fails")).to_have_count(0)
    page.get_by_role("button", name="Acknowledge shop, BackOff to chat").click()
    expect(group(page, "shop reason BackOff")).to_contain_text("acknowledged by ed")
    expect(page.get_by_role("button", name="Acknowledge shop, BackOff to chat")).to_have_count(0)
    # The silence of the whole bus is not theirs.
    expect(page.get_by_text("No silence is active or pending")).to_be_visible()


@pytest.mark.volume
def test_a_reader_has_no_buttons(address: str, open_page: Open) -> None:
    page = open_page(address, expected=401)
    sign_in(page, "vic")
    expect(group(page, "bank")).to_contain_text("firing")
    expect(page.get_by_role("button", name="Show the alerts", exact=False).first).to_be_visible()
    for name in ("silence", "acknowledge", "expire"):
        expect(page.locator("main").get_by_role("button", name=name)).to_have_count(0)


@pytest.mark.volume
def test_an_object_is_silenced_from_its_story(address: str, open_page: Open) -> None:
    page = open_page(address, expected=401)
    sign_in(page, "ann")
    load(page, address.replace("view=notifications", "object=Pod/bank/till-0"))
    page.get_by_role("button", name="Silence its notifications …").click()
    form = page.get_by_role("dialog", name="New silence")
    values = [form.get_by_label(f"Value {number}").input_value() for number in range(1, 5)]
    assert values == ["Pod", "bank", "till-0", "BackOff"]
    page.keyboard.press("Escape")
    expect(form).to_have_count(0)


@pytest.mark.volume
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_the_view_fits_its_width_and_has_no_barrier(
    address: str, open_page: Open, pictures: Path, width: int, scheme: str
) -> None:
    page = open_page(address, width=width, scheme=scheme, expected=401, bypass_csp=True)
    sign_in(page, "ann")
    expect(group(page, "Evicted")).to_contain_text("inhibited")
    page.get_by_role("button", name="Show the alerts of shop, BackOff").click()
    check(page, width, pictures / f"notifications-{width}-{scheme}.png")
    page.get_by_role("button", name="Silence bank, BackOff").click()
    check(page, width, pictures / f"new-silence-{width}-{scheme}.png")


def check(page: Any, width: int, picture: Path) -> None:
    """Look for barriers with axe, and take a picture; not by its path, because threads would write the file."""
    picture.write_bytes(page.screenshot(animations="disabled"))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not barriers(page)
