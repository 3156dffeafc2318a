"""settings.py: what a process may say in its environment, and what the whole bus must agree on."""

from __future__ import annotations

import struct
import traceback
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from eventbus.broker.bus import decode_options, difference
from eventbus.broker.functions import source_life_ms
from eventbus.errors import ConfigError
from eventbus.settings import MIB, AggregateKey, FullBuffer, LogFormat, Options, Settings, SpamKey, SpoolWhen, float32

# -- settings of a process ------------------------------------------------------------------------------------------


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environ({}) == Settings()
    assert Settings.from_environ({"PATH": "/bin", "EVENTBUS_OF_ANOTHER_TOOL": "x"}) == Settings()


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("EVENTBUS_REDIS_URL", "redis://h:1/0", "redis_url", "redis://h:1/0"),
        ("EVENTBUS_PREFIX", "shop", "prefix", "shop"),
        ("EVENTBUS_PARTITIONS", "16", "partitions", 16),
        ("EVENTBUS_BUFFER_EVENTS", " 5 ", "buffer_events", 5),
        ("EVENTBUS_BUFFER_BYTES", "1_000_000", "buffer_bytes", 1_000_000),
        ("EVENTBUS_BUFFER_FULL", "WAIT", "buffer_full", FullBuffer.WAIT),
        ("EVENTBUS_BUFFER_FULL", "drop", "buffer_full", FullBuffer.DROP),
        ("EVENTBUS_FLUSH_S", "0.5", "flush_s", 0.5),
    ],
)
def test_a_variable_sets_its_field(variable: str, text: str, field: str, value: object) -> None:
    assert Settings.from_environ({variable: text}) == msgspec.structs.replace(Settings(), **{field: value})


def test_every_field_has_its_variable() -> None:
    texts = {str: "text", int: "17", float: "17.0", FullBuffer: "wait", LogFormat: "json", SpoolWhen: "always"}
    environ, given = {}, {}
    for field, kind in get_type_hints(Settings).items():
        text = {"log_level": "debug"}.get(field) or ("20000" if field.endswith("_bytes") else texts[kind])
        environ[f"EVENTBUS_{field.upper()}"], given[field] = text, kind(text)
    assert msgspec.structs.asdict(Settings.from_environ(environ)) == given


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("EVENTBUS_PARTITIONS", "many", "'many' is not a valid int"),
        ("EVENTBUS_PARTITIONS", "", "'' is not a valid int"),
        ("EVENTBUS_PARTITIONS", "-1", "between 0 and 1024, not -1"),
        ("EVENTBUS_PARTITIONS", "1025", "between 0 and 1024"),
        ("EVENTBUS_BUFFER_EVENTS", "0", "between 1 and"),
        ("EVENTBUS_LOG_LEVEL", "loud", "EVENTBUS_LOG_LEVEL='loud' is not one of debug, info, warning, error"),
        ("EVENTBUS_LOG_FORMAT", "xml", "(one of text, json)"),
        ("EVENTBUS_BUFFER_EVENTS", "1.5", "'1.5' is not a valid int"),
        ("EVENTBUS_BUFFER_BYTES", "-1", "between 16384 and"),
        ("EVENTBUS_BUFFER_FULL", "block", "(one of drop, wait)"),
        ("EVENTBUS_BUFFER_WAIT_S", "nan", "between 0 and"),
        ("EVENTBUS_FLUSH_S", "inf", "between 0 and"),
        ("EVENTBUS_FLUSH_S", "soon", "'soon' is not a valid float"),
        ("EVENTBUS_WORKER_BLOCK_MS", "0", "between 1 and"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_with_its_variable(variable: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        Settings.from_environ({variable: text})
    assert variable in str(error.value)
    assert said in str(error.value)


def test_the_password_comes_from_its_file_before_the_variable(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from the file\n")
    assert Settings().password is None
    assert Settings(redis_password="given").password == "given"
    assert Settings(redis_password="given", redis_password_file=str(file)).password == "from the file"


def test_a_password_file_that_is_no_text_is_an_error_that_shows_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"secret\xff")
    with pytest.raises(ConfigError, match=r"EVENTBUS_REDIS_PASSWORD_FILE cannot be read: .* is not UTF-8") as caught:
        _ = Settings(redis_password_file=str(file)).password
    assert "secret" not in str(caught.value)
    assert "0xff" not in "".join(traceback.format_exception(caught.value))


def test_a_password_file_that_cannot_be_read_is_an_error_and_no_fallback(tmp_path: Path) -> None:
    settings = Settings(redis_password="given", redis_password_file=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="EVENTBUS_REDIS_PASSWORD_FILE"):
        _ = settings.password


# -- options of the bus ---------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_client_go() -> None:
    options = Options()
    assert (options.burst, options.max_events, options.max_interval_s) == (25, 10, 600)
    assert options.aggregate_message == "(combined from similar events): "
    assert (options.spam_key, options.aggregate_key) == (SpamKey.OBJECT_TYPE, AggregateKey.REASON)
    assert options.event_ttl_s == 3_600


@pytest.mark.parametrize("qps", [1 / 300, 0.7, 0.1, 5.0])
def test_the_rate_is_rounded_to_32_bits_as_client_go_holds_it(qps: float) -> None:
    rounded = struct.unpack("<f", struct.pack("<f", qps))[0]
    assert Options(qps=qps).qps == float32(qps) == rounded


def test_a_third_of_a_hundredth_is_what_client_go_makes_of_it() -> None:
    assert f"{Options().qps:.9g}" == "0.00333333341"
    assert f"{Options(qps=0.7).qps:.9g}" == "0.699999988"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("burst", -1),
        ("burst", 2**31),
        ("qps", -1.0),
        ("qps", -1e-9),
        ("qps", 1e39),
        ("qps", float("nan")),
        ("qps", float("inf")),
        ("max_events", 0),
        ("max_events", 1_001),
        ("max_interval_s", 0),
        ("max_interval_s", 10**10),
        ("event_ttl_s", 0),
        ("event_ttl_s", 10**12),
        ("record_ttl_s", 59),
        ("record_ttl_s", 10**15),
        ("max_stored", 99),
        ("max_records", 99),
        ("incoming_bytes", MIB - 1),
        ("changes_bytes", MIB - 1),
        ("dead_bytes", 65_535),
        ("hold_s", 0),
    ],
)
def test_an_option_out_of_bounds_is_told_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        Options(**{field: value})


@pytest.mark.parametrize("qps", [0, 1e-50, 1e-45, 1e-9, 1e-6, 1 / 300, 0.7, 1e6, 1e9, 3.4028235e38])
def test_a_rate_that_is_taken_is_taken_again_as_it_was_rounded(qps: float) -> None:
    options = Options(qps=qps)
    assert Options(qps=options.qps) == options
    assert decode_options(msgspec.json.encode(options)) == options


@pytest.mark.parametrize("rate", [dict(qps=0), dict(qps=1e-45), dict(max_interval_s=2**63 // 10**9)])
def test_no_record_lives_longer_than_redis_can_count(rate: dict[str, Any]) -> None:
    assert 0 < source_life_ms(Options(burst=2**31 - 1, **rate)) < 2**53


def test_options_come_back_from_redis_as_they_were() -> None:
    options = Options(qps=0.7, spam_key=SpamKey.OBJECT, exempt_reasons=("Started", "Ünïcode"), report_suppressed=False)
    encoded = msgspec.json.encode(options)
    assert decode_options(encoded) == options
    assert b'"maxEvents":10' in encoded


def test_options_of_an_older_bus_get_the_defaults_of_what_it_did_not_know() -> None:
    assert decode_options(b'{"burst":7,"unknownToUs":1}') == Options(burst=7)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"burst":"many"}', b'{"burst":-1}', b'{"spamKey":"else"}', b"\xff"]
)
def test_options_that_cannot_be_read_are_a_config_error(data: bytes) -> None:
    with pytest.raises(ConfigError):
        decode_options(data)


def test_a_difference_names_each_option_with_both_values_and_the_cure() -> None:
    line = difference(Options(), Options(burst=7, max_events=3))
    assert "burst: bus 25, here 7" in line
    assert "max_events: bus 10, here 3" in line
    assert "qps" not in line
    assert "eventbus options set" in line


def test_a_difference_shows_words_as_they_are_typed() -> None:
    line = difference(Options(), Options(spam_key=SpamKey.OBJECT))
    assert "spam_key: bus 'object+type', here 'object'" in line
