"""The rules of a Pod, beyond the recorded answers of an API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventbus.model.kinds import POD
from eventbus.model.objects.pod import PodSpec
from eventbus.model.objects.pod_rules import spec_problems

RULE = "must be a number between 0 and 0777 (octal), both inclusive"


def spec_with(volume: dict[str, Any]) -> PodSpec:
    spec = {"containers": [{"name": "main"}], "volumes": [{"name": "v", **volume}]}
    return POD.decode({"metadata": {"name": "a"}, "spec": spec}).spec


@pytest.mark.parametrize(
    ("volume", "field", "shown"),
    [
        ({"configMap": {"defaultMode": 0o4755}}, "configMap.defaultMode", "2541"),
        ({"configMap": {"items": [{"key": "a", "path": "a", "mode": -1}]}}, "configMap.items[0].mode", "-1"),
        ({"secret": {"defaultMode": 0o1000}}, "secret.defaultMode", "512"),
        ({"secret": {"items": [{"mode": 0}, {"mode": 0o2755}]}}, "secret.items[1].mode", "1517"),
        ({"downwardAPI": {"defaultMode": 0o4755}}, "downwardAPI.defaultMode", "2541"),
        ({"downwardAPI": {"items": [{"mode": 0o4755}]}}, "downwardAPI.items[0].mode", "2541"),
        ({"projected": {"defaultMode": "04755"}}, "projected.defaultMode", '"04755"'),
        (
            {"projected": {"sources": [{"secret": {"items": [{"mode": 0o4755}]}}]}},
            "projected.sources[0].secret.items[0].mode",
            "2541",
        ),
    ],
)
def test_a_mode_with_more_than_permissions_is_refused_in_the_api_servers_words(
    volume: dict[str, Any], field: str, shown: str
) -> None:
    [cause] = spec_problems(spec_with(volume))
    assert (cause.reason, cause.field) == ("FieldValueInvalid", f"spec.volumes[0].{field}")
    assert cause.text == f"Invalid value: {shown}: {RULE}"


def test_a_mode_of_permissions_alone_is_taken() -> None:
    volume = {"secret": {"defaultMode": 0o777, "items": [{"mode": 0}, {"mode": 0o400}]}}
    assert list(spec_problems(spec_with(volume))) == []


def test_a_stored_pod_with_such_a_mode_can_still_be_changed_elsewhere() -> None:
    stored = spec_with({"configMap": {"defaultMode": 0o4755}})
    changed = msgspec.structs.replace(stored, active_deadline_seconds=5)
    assert list(spec_problems(changed, stored)) == []
