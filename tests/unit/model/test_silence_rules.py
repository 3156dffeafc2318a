"""Which silences and acknowledgements are stored, and what the errors name."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from eventbus.model.columns.objects import columns_of
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import ACKNOWLEDGEMENT, KINDS, SILENCE
from eventbus.model.objects.silence import (
    AcknowledgedObject,
    Acknowledgement,
    AcknowledgementSpec,
    Silence,
    SilenceMatcher,
    SilenceSpec,
)
from eventbus.model.silence_rules import (
    MAX_COMMENT,
    MAX_MATCHERS,
    MAX_VALUE,
    acknowledgement_problems,
    matchers_of,
    namespaces_of,
    silence_problems,
)

NOW = datetime(2026, 11, 26, 1, tzinfo=UTC)
NAME = "16c07010-bd85-474d-acde-6636a1045961"
SHOP = SilenceMatcher("namespace", "shop")


def silence(*matchers: SilenceMatcher, name: str = NAME, **fields: Any) -> Silence:
    given: dict[str, Any] = {
        "matchers": matchers or (SHOP,),
        "starts_at": NOW,
        "ends_at": NOW + timedelta(hours=1),
    } | fields
    return Silence(metadata=ObjectMeta(name=name), spec=SilenceSpec(**given))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (silence(name="upgrade"), 'metadata.name: Invalid value: "upgrade": must be a UUID in lower case'),
        (silence(name=NAME.upper()), "must be a UUID in lower case"),
        (silence(matchers=()), "spec.matchers: Required value: at least one matcher"),
        (silence(*[SHOP] * (MAX_MATCHERS + 1)), f'spec.matchers: Invalid value: "33": at most {MAX_MATCHERS}'),
        (silence(SilenceMatcher("namespce", "shop")), 'spec.matchers[0].name: Invalid value: "namespce": there is'),
        (silence(SHOP, SilenceMatcher("reason", "(", True)), "spec.matchers[1].value: Invalid value: \"(\": '(' is no"),
        (silence(SilenceMatcher("reason", "x" * (MAX_VALUE + 1))), f"at most {MAX_VALUE} bytes are allowed"),
        (silence(SilenceMatcher("reason", "é" * (MAX_VALUE // 2 + 1))), f"at most {MAX_VALUE} bytes are allowed"),
        (silence(SilenceMatcher("reason", ".*", True)), 'spec.matchers: Invalid value: "reason=~\\".*\\"": at least'),
        (silence(SilenceMatcher("reason", "BackOff", is_equal=False)), "at least one must not match the empty string"),
        (silence(ends_at=NOW), 'spec.endsAt: Invalid value: "2026-11-26T01:00:00+00:00": must be after startsAt'),
        (silence(starts_at=None), "spec.startsAt: Required value"),
        (silence(ends_at=None), "spec.endsAt: Required value"),
        (silence(starts_at=datetime(1969, 12, 31, tzinfo=UTC)), "spec.startsAt: Invalid value: "),
        (silence(ends_at=datetime(9999, 1, 1, tzinfo=UTC)), "must be in the years 1970 to 9998 of UTC"),
        (silence(ends_at=datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))), "must be in the years 1970 to"),
        (silence(comment="x" * (MAX_COMMENT + 1)), f'spec.comment: Invalid value: "{"x" * 32}…": at most'),
        (silence(created_by="x" * 1025), "spec.createdBy"),
        (
            silence(SHOP, SilenceMatcher("message", "[^x]*(.{0,200}a){5}y", True)),
            'spec.matchers: Invalid value: "2 matchers": the regular expressions are too large',
        ),
    ],
)
def test_an_invalid_silence_is_rejected_with_its_field(wrong: Silence, problem: str) -> None:
    found = [f"{each.field}: {each.text}" for each in silence_problems(wrong)]
    assert len(found) == 1
    assert problem in found[0]


def test_an_expression_of_the_greatest_length_is_small_enough() -> None:
    names = "|".join(f"web-{number}.example.com" for number in range(45))
    pairs = "".join(f"(a{number}|b)" for number in range(130))
    for value in (names, pairs):
        assert MAX_VALUE - 200 < len(value) <= MAX_VALUE
        assert list(silence_problems(silence(SHOP, SilenceMatcher("message", value, True)))) == []


def test_a_silence_may_have_matchers_of_the_empty_string_beside_another() -> None:
    assert list(silence_problems(silence(SHOP, SilenceMatcher("host", "")))) == []


def test_the_four_operators_match_as_in_a_rules_file() -> None:
    matchers = [
        *(SHOP, SilenceMatcher("reason", "Back.*", True)),
        *(SilenceMatcher("name", "web", is_equal=False), SilenceMatcher("host", "db.*", True, False)),
    ]
    spec = silence(*matchers).spec
    assert [str(each) for each in matchers] == ['namespace="shop"', 'reason=~"Back.*"', 'name!="web"', 'host!~"db.*"']
    labels = {"namespace": "shop", "reason": "BackOff", "name": "api", "host": "web-1"}
    assert matchers_of(spec).match(labels)
    for change in ({"namespace": "pay"}, {"reason": "Oops"}, {"name": "web"}, {"host": "db1"}):
        assert not matchers_of(spec).match(labels | change)


def test_only_an_equal_matcher_restricts_a_silence_to_a_namespace() -> None:
    assert namespaces_of(silence(SHOP)) == {"shop"}
    for matcher in (
        SilenceMatcher("namespace", "shop", is_regex=True),
        SilenceMatcher("namespace", "shop", is_equal=False),
        SilenceMatcher("namespace", ""),
        SilenceMatcher("name", "shop"),
    ):
        assert namespaces_of(silence(matcher)) == frozenset()


def test_an_acknowledgement_needs_the_kind_and_name_of_its_object() -> None:
    def problems(about: AcknowledgedObject, **fields: Any) -> list[str]:
        spec = AcknowledgementSpec(object=about, **fields)
        found = Acknowledgement(metadata=ObjectMeta(name=NAME), spec=spec)
        return [f"{each.field}: {each.text}" for each in acknowledgement_problems(found)]

    assert problems(AcknowledgedObject("Pod", "shop", "web-0")) == []
    assert problems(AcknowledgedObject("Pod", "Shop", "")) == [
        "spec.object.name: Required value",
        'spec.object.namespace: Invalid value: "Shop": must be a DNS label',
    ]
    assert problems(AcknowledgedObject("Node", "", "n1"), same_namespace=True) == [
        'spec.sameNamespace: Invalid value: "true": the object is in no namespace'
    ]


def test_the_state_follows_the_time() -> None:
    spec = silence().spec
    states = [spec.state(NOW + timedelta(minutes=minutes)) for minutes in (-1, 0, 59, 60)]
    assert states == ["pending", "active", "active", "expired"]


def test_users_find_the_kinds_by_their_words_and_read_them_in_columns() -> None:
    assert [KINDS.named(word) for word in ("silences", "Silence", "ack")] == [SILENCE, SILENCE, ACKNOWLEDGEMENT]
    made = silence(SHOP, comment="upgrade", created_by="ann")
    row = (NAME, 'namespace="shop"', "2026-11-26T01:00:00Z", "2026-11-26T02:00:00Z", "ann", "active")
    assert columns_of(SILENCE).row(made, NOW, False, False) == row
    assert columns_of(SILENCE).row(made, NOW, True, False) == (*row, "upgrade")


def test_without_google_re2_only_expressions_are_rejected_and_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    (problem,) = silence_problems(silence(SHOP, SilenceMatcher("reason", "Back.*", True)))
    assert problem.field == "spec.matchers[1].value"
    assert problem.text.endswith("pip install 'eventbus[notify]'")
    assert list(silence_problems(silence(SHOP, SilenceMatcher("reason", "BackOff")))) == []
