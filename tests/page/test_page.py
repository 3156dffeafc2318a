"""The page in a real Chromium: each feature by keyboard and by mouse, without a word on the console."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from eventbus.broker.bus import Bus
from eventbus.broker.keys import Keys
from eventbus.broker.notifications import ExpectedEvent
from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.model.kinds import EVENT, LEASE, NODE, POD
from eventbus.model.list_watch import ListOptions
from eventbus.model.objects.cluster import NODE_LEASES, Lease, LeaseSpec, Node
from eventbus.model.objects.pod import ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus
from eventbus.store.object_store import ObjectStore
from tests.page.conftest import PATIENCE_MS, Open, barriers, load

pytestmark = pytest.mark.xdist_group("page")
expect: Any = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE_MS)


#: Each view, and what it shows when it is there.
VIEWS = {
    "": "main .list tbody tr.row",
    "?object=Pod/shop/web-7f-a": ".around tbody tr",
    "?view=health": ".card table",
}


#: What pictures are made of, beside what takes a click.
PICTURED = {
    "overview": ("", ".failing .still"),
    "story": ("?object=Pod/shop/web-7f-a", ".around tbody tr"),
    "story-of-a-node": ("?object=Node//node-1", "main details"),
    "health": ("?view=health", ".card table"),
    "silences": ("?object=Pod/live/quiet", ".timeline .bar"),
    "nothing": ("?q=nothingofthekind", ".nothing p"),
}


def rows(page: Any) -> Any:
    return page.locator("main .list tbody tr.row")


def write(bus: Bus, *events: Event) -> None:
    client = bus.client()
    with ObjectStore(bus, client) as store:
        for event in events:
            store.objects(EVENT).create(event)
    client.close()


def event(
    name: str, reason: str, message: str = "", type_: str = "Normal", namespace: str = "live", age_s: int = 0
) -> Event:
    now = datetime.now(UTC) - timedelta(seconds=age_s)
    return Event(
        metadata=ObjectMeta(generate_name=f"{name}.", namespace=namespace),
        involved_object=ObjectReference("Pod", namespace, name),
        reason=reason,
        message=message,
        source=EventSource("tests"),
        first_timestamp=now,
        last_timestamp=now,
        count=1,
        type=type_,
    )


def test_the_overview_says_what_fails_since_when_how_often_and_whether_it_does_still(
    url: str, open_again: Open
) -> None:
    page = open_again(url)
    failing = page.get_by_role("table", name="Failing").locator("tbody tr").first
    expect(failing).to_contain_text("Pod/web-7f-a")
    expect(failing).to_contain_text("Failed exit code 1")
    expect(failing).to_contain_text("×41")
    expect(failing).to_contain_text("still failing")
    expect(page).to_have_title("Overview · eventbus")
    # Warnings first, newest last seen first.
    expect(rows(page).first).to_contain_text("Warning")
    assert page.locator("main .list tbody tr.row td.reason").all_inner_texts()[:2] == ["Failed", "Odd"]
    expect(page.get_by_role("navigation", name="Facets")).to_contain_text("NodeHasDiskPressure")
    expect(page.get_by_text("● live")).to_be_visible()
    # Local, with UTC on hover.
    expect(rows(page).first.locator("time")).to_have_attribute("title", re.compile(r" UTC$"))
    # A screen reader announces the connection and the number of new events, not the list.
    live_regions = page.locator("[aria-live], [role=status], [role=alert], [role=log]")
    expect(live_regions).to_have_class(["hidden connection", "badge"])
    # No worker stores recorded events here, and the page says so.
    expect(page.get_by_text("No sink worker is running")).to_be_visible()


@pytest.mark.volume
def test_what_is_chosen_stands_in_the_address_and_a_link_shows_the_same(url: str, open_page: Open) -> None:
    page = open_page(url)
    page.get_by_role("button", name="Failed", exact=False).first.click()
    expect(rows(page)).to_have_count(2)
    assert "reason=Failed" in page.url
    page.get_by_label("Order").select_option("count")
    page.get_by_label("Look-back").select_option("6h")
    page.get_by_placeholder("Labels").fill("app=web")
    page.keyboard.press("Enter")
    expect(rows(page)).to_have_count(1)
    expect(page.locator(".reach")).to_contain_text("events are kept 60m")
    assert {"reason=Failed", "sort=count", "last=6h", "labels=app%3Dweb"} <= set(urlsplit(page.url).query.split("&"))

    other = open_page(page.url)
    expect(rows(other)).to_have_count(1)
    expect(other.get_by_placeholder("Labels")).to_have_value("app=web")
    other.get_by_role("button", name="clear").click()
    expect(rows(other)).not_to_have_count(1)
    other.go_back()
    expect(rows(other)).to_have_count(1)
    # Excluded, by keyboard.
    other.get_by_role("button", name="clear").click()
    other.get_by_role("button", name="Exclude Odd").press("Enter")
    expect(other.locator("main .list")).not_to_contain_text("nasty")
    assert "reason=%21Odd" in other.url


@pytest.mark.volume
def test_typing_narrows_what_is_loaded_and_enter_asks_the_server(url: str, open_page: Open) -> None:
    page = open_page(url, expected=400)
    expect(rows(page).nth(3)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("disk pod/none")
    expect(page.get_by_text("No event matches all filters.")).to_be_visible()
    assert "q=" not in page.url
    page.get_by_role("searchbox").fill("DISK full")
    expect(rows(page)).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Remove the words DISK full")).to_be_visible()
    assert "q=DISK" in page.url
    expect(rows(page)).to_have_count(1)
    page.get_by_placeholder("Fields").fill("colour=red")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator(".line").get_by_text("field label not supported: colour")).to_be_visible()


@pytest.mark.volume
def test_the_list_is_read_by_keyboard(url: str, open_page: Open) -> None:
    page = open_page(url)
    expect(rows(page).nth(2)).to_be_visible()
    page.keyboard.press("j")
    expect(rows(page).first).to_be_focused()
    # As quick as keys come: a page that lets two rows take the focus from each other hangs here.
    for key in "jkjkjjkkjk":
        page.keyboard.press(key)
    expect(rows(page).first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".details")).to_contain_text("First seen")
    expect(page.locator(".details")).to_contain_text("eventbus why pod/web-7f-a -n shop")
    page.keyboard.press("Escape")
    expect(page.locator(".details")).to_have_count(0)
    page.keyboard.press("w")
    expect(page.locator("main .list .type.normal")).to_have_count(0)
    page.keyboard.press("w")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("o")
    expect(page.get_by_role("heading", level=1)).to_have_text("Pod/web-7f-a")
    page.keyboard.press("2")
    expect(page.get_by_role("heading", level=1)).to_have_text("Health")
    page.keyboard.press("1")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


@pytest.mark.volume
def test_a_part_of_the_chart_is_zoomed_into_by_mouse_and_by_keyboard(bus: Bus, url: str, open_page: Open) -> None:
    minute = int(datetime.now(UTC).timestamp()) // 60 - 5
    client = bus.client()
    client.hset(bus.keys[0].occurrences + b"%d" % minute, b"shop\0Pod\0Warning\0Failed\0kubelet", 41)
    client.close()
    page = open_page(url)
    expect(page.locator(".histogram .caption")).to_contain_text("Warning")
    # Facets count occurrences, of rows that are there or not: 89 were written.
    sources = page.get_by_role("region", name="Source")
    expect(sources.get_by_role("button", name="kubelet 130")).to_contain_text("130")
    page.get_by_text("The chart as a table").focus()
    page.keyboard.press("Enter")
    page.get_by_role("region", name="The chart as a table").get_by_role("button").first.press("Enter")
    expect(page.get_by_role("button", name="Back from the zoom")).to_be_visible()
    assert "from=" in page.url
    expect(page.get_by_text("a period that has ended")).to_be_visible()
    page.locator("body").press("Escape")
    expect(page.get_by_role("button", name="Back from the zoom")).to_have_count(0)
    chart = page.locator(".u-over")
    chart.hover(position={"x": 20, "y": 30})  # waits until it is drawn anew
    page.mouse.down()
    chart.hover(position={"x": 160, "y": 30})
    chart.hover(position={"x": 300, "y": 30})
    page.mouse.up()
    expect(page.get_by_role("button", name="Back from the zoom")).to_be_visible()


@pytest.mark.volume
def test_a_drag_over_the_chart_goes_on_while_new_counts_arrive(url: str, open_page: Open) -> None:
    held: list[Any] = []

    def hold_the_first(route: Any) -> None:
        if held:
            route.continue_()
        held.append(route)

    page = open_page(url)
    expect(page.locator(".histogram .caption")).to_contain_text("Warning")
    chart = page.locator(".u-over")
    chart.hover(position={"x": 20, "y": 30})
    page.route("**/eventbus/v1/histogram**", hold_the_first)
    with page.expect_request("**/eventbus/v1/histogram**"):
        page.get_by_label("Look-back").select_option("3h")
    chart.hover(position={"x": 20, "y": 30})
    page.mouse.down()
    with page.expect_response("**/eventbus/v1/histogram**"):
        held[0].continue_()
    # Time for the page to take the counts, and to draw: effects run after a frame.
    page.evaluate("async () => { for (let n = 0; n < 9; n++) await new Promise(requestAnimationFrame) }")
    chart.hover(position={"x": 160, "y": 30})
    chart.hover(position={"x": 300, "y": 30})
    page.mouse.up()
    expect(page.get_by_role("button", name="Back from the zoom")).to_be_visible()
    assert "from=" in page.url


def test_new_events_appear_wait_while_one_reads_and_pause(bus: Bus, url: str, open_again: Open) -> None:
    page = open_again(f"{url}?namespace=live&sort=last")
    expect(page.get_by_text("● live")).to_be_visible()
    write(bus, event("a", "One"))
    expect(rows(page)).to_have_count(1)
    page.keyboard.press("j")  # one reads
    write(bus, event("b", "Two"))
    expect(page.get_by_role("button", name="1 new")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    page.keyboard.press("n")
    expect(rows(page)).to_have_count(2)
    page.keyboard.press("p")
    write(bus, event("c", "Three"))
    expect(page.get_by_role("button", name="1 new")).to_be_visible()
    expect(page.get_by_text("paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(rows(page)).to_have_count(3)


@pytest.mark.volume
def test_five_hundred_rows_are_drawn_at_a_time(bus: Bus, url: str, open_page: Open) -> None:
    write(bus, *(event(f"many-{n}", "Seen", type_="Warning", namespace="many", age_s=2) for n in range(100)))
    write(bus, *(event(f"many-{n}", "Seen", namespace="many") for n in range(100, 600)))
    page = open_page(f"{url}?namespace=many")
    expect(rows(page)).to_have_count(500)
    page.get_by_role("button", name="Show 100 more of 100").press("Enter")
    expect(rows(page)).to_have_count(600)
    client = bus.client()
    with ObjectStore(bus, client) as store:  # the other tests' list is short
        for one in store.objects(EVENT).list(ListOptions(namespace="many")).items:
            store.objects(EVENT).delete(one.metadata.name, "many")
    client.close()
    expect(page.get_by_text("expired").first).to_be_visible()


@pytest.mark.volume
def test_of_more_failing_objects_than_are_judged_the_page_says_at_least(bus: Bus, url: str, open_page: Open) -> None:
    write(bus, *(event(f"broken-{n}", "Failed", type_="Warning", namespace="broken") for n in range(210)))
    page = open_page(f"{url}?namespace=broken")
    failing = page.get_by_role("table", name="Failing")
    expect(page.locator(".failing .caption")).to_contain_text("at least 200 objects had Warnings")
    page.get_by_role("button", name="194 more").press("Enter")
    expect(failing.get_by_role("row")).to_have_count(201)
    client = bus.client()
    with ObjectStore(bus, client) as store:  # the other tests' list is short
        for one in store.objects(EVENT).list(ListOptions(namespace="broken")).items:
            store.objects(EVENT).delete(one.metadata.name, "broken")
    client.close()


#: Forty changes within a second, of rows that are there and of others; what stands there, and waits.
A_FLOOD = """async () => {
    const { Rows } = await import("/page/rows.js");
    const rows = new Rows(() => {});
    const frame = (n, count) => ({ type: "MODIFIED", object: {
        metadata: { uid: `${n}`, name: `e-${n}`, namespace: "default" },
        involvedObject: { kind: "Pod", name: `p-${n}` }, type: "Normal", reason: "Said", count,
        lastTimestamp: new Date(1.8e12 + 1000 * count).toISOString(),
    } });
    const order = () => rows.shown({ sort: "last" }, [], 0).map(({ key, count }) => `${key}x${count}`);
    rows.listed([frame(1, 1).object, frame(2, 2).object]);
    const before = order();
    for (let n = 0; n < 40; n++) rows.take([frame(n % 2 ? 1 : 100 + n, 10 + n)], 1.8e12);
    return [before, order(), rows.waiting({}, [], 0)];
}"""


@pytest.mark.volume
def test_a_new_view_takes_the_focus(url: str, open_page: Open) -> None:
    page = open_page(url)
    expect(rows(page).first).to_be_visible()
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Health").press("Enter")
    expect(page.get_by_role("main", name="Health")).to_be_focused()
    page.keyboard.press("1")
    expect(page.get_by_role("main", name="Overview")).to_be_focused()


@pytest.mark.volume
def test_keys_of_a_single_character_can_be_switched_off(url: str, open_page: Open) -> None:
    page = open_page(url)
    expect(rows(page).first).to_be_visible()
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Keys of a single character").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("2")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.locator("tr:focus")).to_have_count(0)
    page.reload()
    page.keyboard.press("?")
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Keys of a single character").check()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Keys of a single character")).to_be_hidden()
    page.keyboard.press("2")
    expect(page.get_by_role("heading", level=1)).to_have_text("Health")


@pytest.mark.volume
def test_a_facet_is_excluded_by_touch(url: str, open_page: Open) -> None:
    page = open_page(url, width=360, has_touch=True, is_mobile=True)
    page.get_by_role("button", name="All filters").tap()
    page.get_by_role("button", name="Exclude Odd").tap()
    expect(page.get_by_role("button", name="Remove Reason !Odd")).to_be_visible()
    expect(page.locator("main .list")).not_to_contain_text("nasty")


@pytest.mark.volume
def test_chart_and_facets_say_that_they_do_not_know_words(url: str, open_page: Open) -> None:
    page = open_page(url)
    expect(page.locator(".histogram .caption")).to_contain_text("every occurrence")
    expect(page.locator(".uncounted")).to_have_count(0)
    page.get_by_role("searchbox").fill("disk")
    expect(page.locator(".uncounted")).to_have_text(
        ["Counts are not filtered by words or selectors.", "not filtered by words or selectors"]
    )


@pytest.mark.volume
def test_a_silent_lease_is_a_problem_of_its_node(bus: Bus, url: str, open_page: Open) -> None:
    client = bus.client()
    renewed = datetime.now(UTC) - timedelta(minutes=5)
    with ObjectStore(bus, client) as store:
        store.objects(NODE).create(Node(metadata=ObjectMeta(name="node-silent")))
        spec = LeaseSpec(holder_identity="node-silent", lease_duration_seconds=40, renew_time=renewed)
        store.objects(LEASE).create(Lease(metadata=ObjectMeta(name="node-silent", namespace=NODE_LEASES), spec=spec))
        page = open_page(f"{url}?view=health")
        expect(page.locator(".troubles")).to_contain_text("nodes are not well")
        expect(
            page.get_by_role("region", name="Nodes", exact=True).get_by_role("row", name="node-silent")
        ).to_contain_text("✕ 5m")
        store.objects(NODE).delete("node-silent")
        store.objects(LEASE).delete("node-silent", NODE_LEASES)
    client.close()


def test_the_page_has_the_rules_of_the_library(bus: Bus, url: str, open_again: Open) -> None:
    twins = json.loads((Path(__file__).parent / "twins.json").read_text("utf-8"))
    page = open_again(f"{url}time.js")
    shown = page.evaluate(
        """async ({ durations, printable, times }) => {
            const { duration } = await import("/page/time.js");
            const { line } = await import("/page/text.js");
            const { rowOf } = await import("/page/event.js");
            const iso = (ms) => new Date(ms).toISOString().replace(".000Z", "Z");
            const rows = times.map(([fields]) => rowOf({ metadata: {}, involvedObject: {}, ...fields }));
            return {
                durations: durations.map(([seconds]) => [seconds, duration(seconds)]),
                printable: printable.map(([text]) => [text, line(text)]),
                times: rows.map((row, at) => [times[at][0], iso(row.first), iso(row.last)]),
            };
        }""",
        twins,
    )
    assert shown == twins


@pytest.mark.volume
def test_words_are_found_in_the_fields_in_which_the_server_searches(bus: Bus, url: str, open_page: Open) -> None:
    full = msgspec.structs.replace(
        event("twin-name", "TwinReason", "twin message", namespace="twins"),
        action="TwinAction",
        reporting_component="twin/controller",
        reporting_instance="twin-instance",
        related=ObjectReference("Node", "", "twin-related"),
        source=EventSource("twin-component", "twin-host"),
    )
    labels = {"twin-label": "twin-value"}
    meta = msgspec.structs.replace(full.metadata, labels=labels, annotations={"twin-note": "twin-text"})
    write(bus, msgspec.structs.replace(full, metadata=meta))
    words = ["twinreason", "message", "twinaction", "pod/twin-name", "twin-component", "twin-host", "node/twin-related"]
    words += ["twin/controller", "twin-instance", "twin-label=twin-value", "twin-note=twin-text", "not-there"]
    page = open_page(url)
    results = page.evaluate(
        """async (words) => {
            const { rowOf } = await import("/page/event.js");
            const { call } = await import("/page/api.js");
            const search = async (q) => (await call("/eventbus/v1/events", { namespace: "twins", q })).items;
            const [event] = await search("");
            const text = rowOf(event).text;
            return Promise.all(words.map(async (word) => [word, text.includes(word), (await search(word)).length]));
        }""",
        words,
    )
    assert results == [[word, word != "not-there", int(word != "not-there")] for word in words]


@pytest.mark.volume
def test_a_flood_does_not_make_the_list_jump(url: str, open_page: Open) -> None:
    page = open_page(url)
    before, after, waiting = page.evaluate(A_FLOOD)
    assert before == ["2x2", "1x1"]
    # Beyond thirty a second new rows wait, and those that stand there change where they stand.
    assert after[0] == "1x49"
    assert len(after) + waiting == 2 + 20
    assert waiting == 5


@pytest.mark.volume
def test_a_stream_that_was_cut_or_is_too_old_goes_on(bus: Bus, url: str, open_page: Open) -> None:
    page = open_page("about:blank")
    answers = iter([410, 503])

    def answer(route: Any) -> None:
        code = next(answers, 0)
        body = json.dumps({"kind": "Status", "message": "too old resource version", "code": code})
        route.fulfill(status=code, body=body, content_type="application/json") if code else route.continue_()

    page.close()
    page = page.context.new_page()
    lists: list[str] = []
    page.on("request", lambda request: lists.append(request.url))
    page.route("**/api/v1/**watch=1**", answer)
    load(page, f"{url}?namespace=live")
    expect(page.get_by_text("● live")).to_be_visible()
    assert (
        sum("/eventbus/v1/events" in asked for asked in lists) == 4
    )  # all and the Warnings, listed anew after 410; not after 503
    write(bus, event("d", "Four"))
    expect(page.get_by_text("Four", exact=True).first).to_be_visible()
    # As long as it is cut off, it says so.
    page.unroute("**/api/v1/**watch=1**")
    page.route("**/eventbus/v1/events**", lambda route: route.fulfill(status=503, body="{}"))
    page.get_by_label("Look-back").select_option("3h")
    expect(page.get_by_text("cut off for")).to_contain_text("trying again")
    page.unroute("**/eventbus/v1/events**")
    expect(page.get_by_text("● live")).to_be_visible()


@pytest.mark.volume
def test_one_object_tells_its_story_with_what_happened_around_it(url: str, open_page: Open) -> None:
    page = open_page(url)
    page.get_by_role("link", name="Pod/web-7f-a").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Pod/web-7f-a")
    assert "object=Pod/shop/web-7f-a" in page.url
    expect(page.locator(".verdict")).to_contain_text("Failed 41 times")
    expect(page.locator(".verdict")).to_contain_text("still failing")
    around = page.get_by_role("table", name="Related events")
    expect(around.get_by_role("row").filter(has_text="change on its host")).to_contain_text("nginx 1.24 to 1.26")
    expect(around.get_by_role("row").filter(has_text="its node")).to_contain_text("NodeHasDiskPressure")
    expect(around.get_by_role("row").filter(has_text="same reason")).to_contain_text("db-0")
    expect(page.get_by_role("img", name="Timeline", exact=False)).to_be_visible()
    selected = "involvedObject.kind=Pod,involvedObject.name=web-7f-a"
    expect(page.get_by_text(f"kubectl get events -n shop --field-selector {selected}")).to_be_visible()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy = page.get_by_role("button", name="Copy: eventbus why pod/web-7f-a -n shop")
    copy.press("Enter")
    expect(copy).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == "eventbus why pod/web-7f-a -n shop"
    page.get_by_label("How long before").select_option("5m")
    page.get_by_role("link", name="Deployment/web").first.click()
    expect(page.locator(".relations")).to_contain_text("ReplicaSet/web-7f")
    expect(page.locator(".verdict")).to_contain_text("Failed 41 times")
    page.go_back()
    page.get_by_role("link", name="Node/node-1").first.click()
    expect(page.get_by_role("heading", name="The stored object")).to_be_visible()


@pytest.fixture(scope="module")
def quiet(bus: Bus) -> None:
    """Have a pod that was restarted twenty times, by the counts with a silence in between."""
    now = datetime.now(UTC)
    first, last = now - timedelta(minutes=40), now - timedelta(minutes=1)
    restarted = msgspec.structs.replace(
        event("quiet", "Restarted"), first_timestamp=first, last_timestamp=last, count=20
    )
    write(bus, restarted)
    client = bus.client()
    counted = b"live\0Pod\0Normal\0Restarted\0tests"
    for minute in client.keys(bus.keys[0].occurrences + b"*"):  # when it was written, is where it was counted
        client.hdel(minute, counted)
    begin, end = (int(time.timestamp()) // 60 for time in (first, last))
    for minute in (begin, begin + 1, begin + 2, end):
        client.hset(bus.keys[0].occurrences + b"%d" % minute, counted, 5)
    client.close()


@pytest.mark.volume
@pytest.mark.usefixtures("quiet")
def test_silences_and_restarts_are_seen_in_what_was_only_counted(url: str, open_page: Open) -> None:
    page = open_page(f"{url}?object=Pod/live/quiet")
    expect(page.get_by_role("table", name="Events").locator("tbody tr")).to_contain_text("silent 36m")
    expect(page.locator(".timeline .silence title")).to_contain_text("silent 36m")
    expect(page.locator(".timeline .bar")).to_have_count(2)
    expect(page.locator(".timeline .restart")).to_have_count(4)


@pytest.mark.volume
def test_a_story_goes_on_by_the_one_stream_of_the_page(bus: Bus, url: str, open_page: Open) -> None:
    write(bus, event("told", "Begun"))
    page = open_page("about:blank")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    load(page, f"{url}?object=Pod/live/told")
    expect(page.get_by_text("● live")).to_be_visible()
    write(bus, event("told", "Broken", type_="Warning"), event("told-a", "Other"))
    expect(page.get_by_role("table", name="Events").locator("tbody tr")).to_have_count(2)
    # What follows from it, the server says: it is asked again.
    expect(page.locator(".verdict")).to_contain_text("Broken once")
    assert sum("watch=1" in one for one in asked) == 1


@pytest.mark.volume
def test_objects_that_were_started_together_are_one_line_with_a_link_each(bus: Bus, url: str, open_page: Open) -> None:
    source = EventSource("tests", "host-of-many")
    starts = [event(f"many-{number}", "Started") for number in range(7)]
    write(
        bus, *(msgspec.structs.replace(one, source=source) for one in (*starts, event("one", "Failed", "m", "Warning")))
    )
    page = open_page(f"{url}?object=Pod/live/one")
    line = page.locator(".around tbody tr").filter(has_text="many-")
    expect(line).to_have_count(1)
    expect(line).to_contain_text("Pod ×7")
    expect(line).to_contain_text("7 started: ")
    expect(line).to_contain_text("and 2 more")
    expect(line.get_by_role("link")).to_have_count(5)


@pytest.mark.volume
def test_what_has_completed_since_its_last_failure_fails_no_more(bus: Bus, url: str, open_page: Open) -> None:
    def job(reason: str, type_: str = "Normal", count: int = 1) -> Event:
        return msgspec.structs.replace(event("nightly", reason, type_=type_), count=count)

    write(bus, job("Failed", "Warning", 7))
    # Only Warnings are asked for: the end is known all the same.
    page = open_page(f"{url}?namespace=live&type=Warning")
    failing = page.get_by_role("table", name="Failing").locator("tbody tr").filter(has_text="nightly")
    expect(failing).to_contain_text("still failing")
    expect(rows(page).filter(has_text="nightly").locator(".goes-on")).to_have_count(1)
    ended = msgspec.structs.replace(job("Completed"), last_timestamp=datetime.now(UTC) + timedelta(seconds=1))
    write(bus, ended)
    expect(failing).to_contain_text("recovered Completed")
    expect(rows(page).filter(has_text="nightly").locator(".goes-on")).to_have_count(0)
    failing.get_by_role("link", name="Pod/nightly").click()
    expect(page.locator(".verdict")).to_contain_text("recovered: Completed since then")


def test_health_shows_nodes_by_condition_and_lets_who_may_replay_and_discard(
    bus: Bus, url: str, url_with_users: str, open_again: Open
) -> None:
    client = bus.client()
    keys: Keys = bus.keys[0]
    for _ in range(2):
        client.xadd(keys.dead, {"cause": "handler-failed", "group": "billing", "deaths": "3", "at": "0", "b": b"?"})
    client.close()
    page = open_again(f"{url}?view=health")
    expect(page.get_by_role("region", name="Nodes", exact=True)).to_contain_text("DiskPressure True")
    expect(page.get_by_role("region", name="Groups and workers", exact=True)).to_contain_text("no worker runs")
    expect(page.get_by_role("region", name="Partitions", exact=True).locator("tbody tr")).to_have_count(bus.partitions)
    dead = page.get_by_role("region", name="Dead letter", exact=True)
    expect(dead).to_contain_text("handler-failed")
    dead.get_by_role("button", name="Show", exact=False).first.click()
    expect(dead.get_by_label("The entry as JSON")).to_be_visible()
    discard = dead.get_by_role("button", name="Discard", exact=False).first
    discard.click()
    expect(discard).to_have_text("for good?")
    discard.press("Enter")
    expect(dead.get_by_role("status")).to_contain_text("was discarded")
    expect(dead.get_by_role("button", name="Discard", exact=False)).to_have_count(1)

    reader = open_again(url_with_users, expected=401)
    reader.get_by_label("Token").fill("view-token")
    reader.keyboard.press("Enter")
    expect(reader.get_by_text("vic (read-only)")).to_be_visible()
    reader.keyboard.press("2")
    expect(reader.get_by_role("region", name="Dead letter", exact=True)).to_contain_text("handler-failed")
    expect(reader.get_by_role("button", name="Discard", exact=False)).to_have_count(0)


@pytest.mark.volume
def test_health_shows_sinks_that_are_paused_what_was_held_back_and_pods(bus: Bus, url: str, open_page: Open) -> None:
    client = bus.client()
    keys: Keys = bus.keys[0]
    paused_ms = int((datetime.now(UTC) - timedelta(minutes=7)).timestamp() * 1000)
    state = {"mode": "counts", "paused_since_ms": paused_ms, "error": "<b>refused</b>", "error_ms": paused_ms}
    client.hset(keys.export + b"loki", mapping=state)
    client.hset(keys.meta, "export:loki", "1")
    client.hset(keys.suppressed, "S\0kubelet\0Pod\0Normal\0Started", 4)
    ended = ContainerStateTerminated(exit_code=137, reason="OOMKilled", finished_at=datetime.now(UTC))
    web = ContainerStatus(name="web", restart_count=5, last_state=ContainerState(terminated=ended))
    with ObjectStore(bus, client) as store:
        status = PodStatus(phase="Running", container_statuses=(web,))
        store.objects(POD).create(Pod(metadata=ObjectMeta(name="oom-0", namespace="live"), status=status))
    client.close()
    page = open_page(f"{url}?view=health")
    sinks = page.get_by_role("region", name="Exports", exact=True)
    expect(sinks).to_contain_text("paused since")
    expect(sinks).to_contain_text("<b>refused</b> 7m")
    expect(page.get_by_role("region", name="Suppressed, aggregated, evicted", exact=True)).to_contain_text("Started")
    pods = page.get_by_role("region", name="Pods", exact=True)
    expect(pods.locator("tbody tr")).to_contain_text("Running")
    pods.get_by_role("link", name="Pod/oom-0").click()
    expect(page.locator(".relations")).to_contain_text("web 5, last ended")
    expect(page.locator(".relations")).to_contain_text("with code 137 (OOMKilled)")


@pytest.mark.volume
def test_health_shows_expected_events_and_names_missing_ones(bus: Bus, url: str, open_page: Open) -> None:
    hour, now_ms = 3_600_000, int(datetime.now(UTC).timestamp() * 1000)
    missing = ExpectedEvent(
        name="<b>nightly</b>",
        object=ObjectReference(kind="Backup", namespace="shop", name="db"),
        since_ms=now_ms - 50 * hour,
        base_ms=now_ms - 30 * hour,
        due_ms=now_ms - 5 * hour,
        deadline_ms=now_ms - 4 * hour,
        last_ms=now_ms - 30 * hour,
        missing_ms=now_ms - 4 * hour,
    )
    with bus.client() as client:
        client.hset(bus.keys[0].notify, "expected:1", msgspec.json.encode(missing))
        page = open_page(f"{url}?view=health")
        expect(page.locator(".troubles")).to_contain_text("1 expected event is missing <b>nightly</b>")
        card = page.get_by_role("region", name="Expected events", exact=True)
        expect(card.locator("tbody tr")).to_contain_text("Missing 4h")
        expect(card.locator("tbody tr")).to_contain_text("30h ago")
        expect(card.get_by_role("link", name="Backup/db")).to_be_visible()
        client.delete(bus.keys[0].notify)
        expect(card).to_have_count(0)


@pytest.mark.volume
def test_a_token_is_asked_for_once_and_signing_out_forgets_it(url_with_users: str, open_page: Open) -> None:
    page = open_page(url_with_users, expected=401)
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_text("unknown token")).to_be_visible()
    page.get_by_label("Token").fill("admin-token")
    page.get_by_role("button", name="Sign in").click()
    expect(rows(page).first).to_be_visible()
    page.reload()
    expect(rows(page).first).to_be_visible()
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.context.cookies() == []


def test_texts_of_events_are_text(url: str, open_again: Open) -> None:
    page = open_again(f"{url}?q=nasty")
    message = rows(page).first.locator("td.message")
    expect(message).to_contain_text("<img src=x onerror=alert(1)><script>alert(2)</script> javascript:alert(3)")
    expect(message).to_contain_text("\\x1b[31mred\\x1b[0m \\u202etxt.exe\\u202c")
    rows(page).first.click()
    assert (
        page.locator(".details a[href^='https://example.org/']").get_attribute("rel") == "noopener noreferrer nofollow"
    )
    assert page.locator("main img, main script, a[href^='javascript:']").count() == 0
    page.get_by_role("button", name="JSON").click()
    assert "\u202e" not in page.locator("main").inner_text()
    load(page, f"{url}?object=%3Cscript%3E/%22/%3Cimg%20src=x%3E")
    expect(page.get_by_role("heading", level=1)).to_have_text("<script>/<img src=x>")


#: A stream that ends in an error after each good head, five times; the pauses before it was asked for anew.
EXPIRED = """async () => {
    const { Live } = await import("/page/live.js");
    const pauses = [], signals = [], timer = window.setTimeout, line = '{"type":"ERROR","object":{"code":410}}\\n';
    window.setTimeout = (then, ms) => (pauses.push(ms), timer(then, 0));
    window.fetch = async (path, { signal }) => (signals.push(signal), new Response(line));
    let lists = 0;
    await new Promise((done) => {
        const list = async () => (++lists === 5 ? new Promise(done) : "1");
        new Live({ list, watch: { path: "/", query: {} } }, { changed() {}, state() {} });
    });
    return [pauses, signals.map(({ aborted }) => aborted)];
}"""

#: What two lists, made at once, and a watch from the older one say of one event.
TWO_LISTS = """async () => {
    const { Rows } = await import("/page/rows.js");
    const rows = new Rows(() => {});
    const state = (resourceVersion, count) => ({ metadata: { uid: "u", resourceVersion }, count });
    rows.listed([state("9", 1), state("11", 3), state("10", 2)]);
    const counts = [rows.all[0].count];
    for (const type of ["MODIFIED", "DELETED"]) rows.take([{ type, object: state("10", 2) }]);
    counts.push(rows.all[0].count, rows.all[0].gone);
    rows.take([{ type: "MODIFIED", object: state("100", 4) }]);
    return [...counts, rows.all[0].count];
}"""

#: The version from which the overview watches, of two lists.
OLDER = """async () => {
    const { listing } = await import("/page/listing.js");
    const answers = ["100", "99"];
    window.fetch = async () => new Response(JSON.stringify({ resourceVersion: answers.shift(), items: [] }));
    return listing({}, { since: 0, until: null }, () => {}).list(new AbortController().signal);
}"""


@pytest.mark.volume
def test_a_stream_that_is_too_old_again_and_again_is_asked_for_with_pauses_and_left_closed(
    url: str, open_page: Open
) -> None:
    pauses, closed = open_page(f"{url}live.js").evaluate(EXPIRED)
    assert pauses == [1000, 2000, 5000]
    assert closed == [True] * 4


@pytest.mark.volume
def test_of_two_lists_the_older_is_gone_on_from_and_the_newer_row_stays(url: str, open_page: Open) -> None:
    page = open_page(f"{url}live.js")
    assert page.evaluate(TWO_LISTS) == [3, 3, False, 4]
    assert page.evaluate(OLDER) == "99"


@pytest.mark.volume
def test_the_words_that_the_server_was_asked_for_hold_for_what_comes(bus: Bus, url: str, open_page: Open) -> None:
    page = open_page(f"{url}?namespace=live&q=needle&sort=last")
    expect(page.get_by_text("● live")).to_be_visible()
    page.get_by_role("searchbox").fill("")
    write(bus, event("hay", "Hay", "nothing of it"), event("one", "Found", "a Needle"))
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("Needle")


#: An hour of ten events a second, as the stream brings them; what is kept at its end.
AN_HOUR = """async () => {
    const { Rows, MOST } = await import("/page/rows.js");
    const rows = new Rows(() => {});
    for (let second = 0; second < 3600; second++) {
        const now = 1.8e12 + second * 1000, time = new Date(now).toISOString();
        const frames = Array.from({ length: 10 }, (_, n) => ({ type: "ADDED", object: {
            metadata: { uid: `${second}-${n}`, name: `e-${second}-${n}`, namespace: "default" },
            involvedObject: { kind: "Pod", name: `p-${n}` }, type: "Normal", reason: "Said",
            firstTimestamp: time, lastTimestamp: time,
        } }));
        rows.take(frames, now);
    }
    return [rows.all.length, MOST, Math.max(...rows.all.map((row) => row.last)) === 1.8e12 + 3599e3];
}"""


@pytest.mark.volume
def test_an_hour_of_ten_events_a_second_leaves_no_more_rows_than_are_kept(url: str, open_page: Open) -> None:
    page = open_page(url)
    expect(rows(page).first).to_be_visible()
    kept, most, newest_is_there = page.evaluate(AN_HOUR)
    assert kept <= most * 1.1
    assert newest_is_there


@pytest.mark.volume
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(url: str, open_page: Open, scheme: str) -> None:
    for view, ready in VIEWS.items():
        page = open_page(url + view, scheme=scheme, bypass_csp=True)
        expect(page.locator(ready).first).to_be_visible()
        if not view:
            rows(page).first.click()
        assert not barriers(page)


@pytest.mark.volume
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280, 1920])
@pytest.mark.usefixtures("quiet")
def test_each_view_fits_every_width_in_both_schemes_and_leaves_a_picture(
    url: str, url_with_users: str, open_page: Open, pictures: Path, width: int, scheme: str
) -> None:
    page = open_page(url, width=width, scheme=scheme, expected=401)

    def picture(name: str, ready: str) -> None:
        expect(page.locator(ready).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        # As high as it is, for rows out of sight are not painted; and not by its path: threads would write the file.
        page.set_viewport_size({"width": width, "height": page.evaluate("document.documentElement.scrollHeight")})
        taken = page.screenshot(animations="disabled")
        page.set_viewport_size({"width": width, "height": 900})
        (pictures / f"{name}-{width}-{scheme}.png").write_bytes(taken)

    for name, (address, ready) in PICTURED.items():
        load(page, url + address)
        picture(name, ready)
    load(page, url)
    rows(page).first.click()
    picture("event", ".details")
    page.get_by_role("button", name="All filters").click() if width == 320 else None
    expect(page.get_by_role("navigation", name="Facets")).to_be_visible()
    picture("facets", ".facets")
    page.get_by_role("button", name="Keys").click()
    picture("keys", "dialog")
    load(page, url_with_users)
    picture("sign-in", "#token")
