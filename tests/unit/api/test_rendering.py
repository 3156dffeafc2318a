"""rendering.py: what is kept of encoded items."""

from __future__ import annotations

import pytest

from eventbus.api.kube import rendering
from eventbus.api.kube.rendering import items_of
from eventbus.api.kube.tables import EncodedItems
from eventbus.api.versions.wire_versions import WireVersions
from eventbus.model.kinds import EVENT
from tests.builders import make_event


@pytest.mark.parametrize(("partitions", "kept"), [(1, 3), (4, 0)])
def test_what_is_made_anew_for_each_list_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, partitions: int, kept: int
) -> None:
    items: EncodedItems[bytes] = EncodedItems()
    monkeypatch.setattr(rendering, "_items", items)
    events = [make_event() for _ in range(3)]
    assert len(items_of(EVENT, events, WireVersions(partitions=partitions))) == 3
    assert sum(map(len, items._recent.values())) == kept
