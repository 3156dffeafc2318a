"""Makes a sink from a URL. The scheme selects a built-in maker, or one that another package has registered.

A sink's module is imported only when its scheme is used.
"""

from __future__ import annotations

import inspect
import os
import re
import socket
from collections.abc import Callable, Mapping
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

import msgspec

from eventbus.errors import ConfigError
from eventbus.export.sinks.contract import EventSink
from eventbus.settings import read_secret
from eventbus.util.extras import extra_needed

#: The whole URL, for those that hold a secret.
EXPORT_TO: Final = "EVENTBUS_EXPORT_TO"

#: Which counts and times of events a sink is given: those client-go would have written, or those that readers see.
COUNTS: Final = ("written", "shown")

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}\Z")


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of every sink besides its URL. *name* is never empty."""

    name: str
    environ: Mapping[str, str] = {}
    timeout_s: float = 10.0  #: longest wait for one answer; after that the system counts as unreachable
    bus_id: str = ""  #: of the exported bus: its own API refuses to import its events again

    def secret(self, variable: str) -> str:
        """Return the value of *variable*, or the content of the file named by <variable>_FILE (that wins), or "".

        White space around it is taken off. Raises: ConfigError: the file cannot be read.
        """
        path = self.environ.get(f"{variable}_FILE", "")
        return read_secret(f"{variable}_FILE", path) if path else self.environ.get(variable, "").strip()

    def ascii_secret(self, variable: str) -> str:
        """Return the secret for a header. Raises: ConfigError: also if it is not printable ASCII."""
        value = self.secret(variable)
        if not (value.isascii() and value.isprintable()):
            # Without the value, because the error is logged.
            raise ConfigError(f"{variable} must be printable ASCII")
        return value


#: Makes one kind of sink. Raises: ConfigError: the URL or a secret is not valid. It does not connect yet.
SinkMaker = Callable[[str, SinkOptions], EventSink]

#: The group in which a package registers schemes of its own: `scheme = "package.module:maker"`.
ENTRY_POINTS: Final = "eventbus.sinks"

#: Scheme → the path of its SinkMaker, and the extra that installs its dependencies ("" for none).
SCHEMES: Final[dict[str, tuple[str, str]]] = {
    "file": ("eventbus.export.sinks.file:make_file_sink", ""),
    "stdout": ("eventbus.export.sinks.file:make_stdout_sink", ""),
    "postgresql": ("eventbus.export.sinks.postgres.sink:make_postgres_sink", "postgres"),
    "postgres": ("eventbus.export.sinks.postgres.sink:make_postgres_sink", "postgres"),
    "kubernetes": ("eventbus.export.sinks.kubernetes:make_kubernetes_sink", "kubernetes"),
    "https": ("eventbus.export.sinks.webhook.sink:make_webhook_sink", "webhook"),
    "http": ("eventbus.export.sinks.webhook.sink:make_webhook_sink", "webhook"),
    "otlp": ("eventbus.export.sinks.otlp:make_otlp_sink", "otlp"),
    "otlps": ("eventbus.export.sinks.otlp:make_otlp_sink", "otlp"),
    "loki+http": ("eventbus.export.sinks.otlp:make_loki_sink", "otlp"),
    "loki+https": ("eventbus.export.sinks.otlp:make_loki_sink", "otlp"),
    **dict.fromkeys(
        ("elasticsearch+http", "elasticsearch+https", "opensearch+http", "opensearch+https"),
        ("eventbus.export.sinks.elasticsearch:make_elasticsearch_sink", "webhook"),
    ),
    **dict.fromkeys(
        ("clickhouse+http", "clickhouse+https"),
        ("eventbus.export.sinks.clickhouse:make_clickhouse_sink", "webhook"),
    ),
    **dict.fromkeys(("splunk+http", "splunk+https"), ("eventbus.export.sinks.splunk:make_splunk_sink", "webhook")),
    **dict.fromkeys(("nats", "nats+tls"), ("eventbus.export.sinks.nats:make_nats_sink", "nats")),
    **dict.fromkeys(("kafka", "kafka+tls"), ("eventbus.export.sinks.kafka:make_kafka_sink", "kafka")),
    **dict.fromkeys(("s3", "s3+http", "s3+https"), ("eventbus.export.sinks.s3:make_s3_sink", "s3")),
    **dict.fromkeys(("syslog", "syslog+tls"), ("eventbus.export.sinks.syslog:make_syslog_sink", "")),
}


def make_sink(
    url: str, environ: Mapping[str, str], *, name: str = "", timeout_s: float = 10.0, bus_id: str = ""
) -> EventSink:
    """Make the sink that *url* names. It does not connect yet.

    An unknown scheme is looked up in the entry points of `ENTRY_POINTS`: each names a SinkMaker.

    Args:     name: the key of the sink's stored state, [a-z0-9.-]{1,63}; "": `default_name`.
              bus_id: the bus that the events come from: an API of that bus refuses them.
    Raises:   ConfigError: no such scheme, an extra is not installed, or the sink's maker refuses the URL.
    """
    scheme = _split(url).scheme
    name = check_name(name or default_name(url, environ))
    options = SinkOptions(name=name, environ=environ, timeout_s=timeout_s, bus_id=bus_id)
    if scheme not in SCHEMES:
        return _make_registered(url, scheme, options)
    maker: SinkMaker = _load(*SCHEMES[scheme])
    return maker(url, options)


def _make_registered(url: str, scheme: str, options: SinkOptions) -> EventSink:
    """Make the sink with the SinkMaker that another package has registered for *scheme*."""
    registered = entry_points(group=ENTRY_POINTS)
    places = sorted({point.value for point in registered if point.name == scheme})
    if not places:
        known = ", ".join(f"{known}:" for known in [*SCHEMES, *sorted(registered.names)])
        raise ConfigError(f"no sink for {safe_sink_url(url)!r}: the URL must begin with one of {known}")
    if len(places) > 1:
        raise ConfigError(f"{scheme}: is registered more than once, for {', '.join(places)}: uninstall all but one")
    place = places[0]
    maker = _load(place, "")
    try:
        inspect.signature(maker).bind(url, options)
    except TypeError:
        raise ConfigError(f"{place} cannot be called with a URL and SinkOptions: it is no maker of sinks") from None
    except ValueError:  # a function written in C may have no signature
        pass
    sink: Any = maker(url, options)
    if not isinstance(sink, EventSink):
        raise ConfigError(f"{place} returned a {type(sink).__name__}, which is no EventSink")
    return sink


def check_name(name: str) -> str:
    """Return *name*, if it can be a sink's. Raises: ConfigError."""
    if not _NAME.match(name):
        raise ConfigError(f"sink name {name!r} must match [a-z0-9][a-z0-9.-]{{0,62}}")
    return name


def default_name(url: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the scheme and six hex digits that identify the sink's target.

    A new password or option does not change the name.

    file: the host's name and the whole path; stdout: the host's name; postgresql: host, port, database, schema;
    kubernetes: the API server's URL and the namespace; others: the URL without user and password, with its query,
    because any of its options may select another target.

    Raises: ConfigError: the kubeconfig cannot be used, or PostgreSQL's clients cannot read the URL.
    """
    parts = _split(url)
    scheme = "postgresql" if parts.scheme == "postgres" else parts.scheme
    same = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if scheme == "file":
        # Written as it is read: file:events.jsonl is another file in another folder, and the same by its whole path.
        same = f"{socket.gethostname()} file:{os.path.abspath(unquote(parts.path))}"
    elif scheme == "stdout":
        same = f"{socket.gethostname()} {same}"
    elif scheme == "postgresql":
        same = _load("eventbus.export.sinks.postgres.sink:target_of", "postgres")(url, environ or {})
    elif scheme == "kubernetes":
        server: str = _load("eventbus.export.sinks.kubernetes:server_of", "kubernetes")(url, environ or {})
        same = f"{server} {dict(parse_qsl(parts.query)).get('namespace', '')}"
    return f"{scheme.replace('+', '-') or 'sink'}-{blake2b(same.encode('utf-8', 'replace'), digest_size=3).hexdigest()}"


def given_url(to: str, environ: Mapping[str, str]) -> str:
    """Return the sink's URL: *to*, from the command line, else that of EVENTBUS_EXPORT_TO or of its _FILE.

    Raises: ConfigError: there is none, or *to* holds a password: every user of the machine can read a command line.
    """
    if not to:
        url = SinkOptions(name="", environ=environ).secret(EXPORT_TO)
        if not url:
            raise ConfigError(f"give the sink's URL: --to, or {EXPORT_TO}, or {EXPORT_TO}_FILE")
        return url
    parts = _split(to)
    if parts.password is not None or "password" in dict(parse_qsl(parts.query)):
        own = "EVENTBUS_POSTGRES_PASSWORD(_FILE), or " if parts.scheme in ("postgresql", "postgres") else ""
        raise ConfigError(
            f"--to {safe_sink_url(to)}: every user of this machine can see a password on the command line;"
            f" give it as {own}the whole URL as {EXPORT_TO}(_FILE)"
        )
    return to


def split_counts(url: str) -> tuple[str, str]:
    """Take `counts=written` or `counts=shown` out of *url*: it is the export's and no sink's. Return both.

    Raises: ConfigError: it is another word.
    """
    rest, counts = take_option(url, "counts")
    if counts not in (None, *COUNTS):
        raise ConfigError(f"counts={counts!a} in the sink's URL: give counts=written or counts=shown")
    return rest, counts or COUNTS[0]


def take_option(url: str, name: str) -> tuple[str, str | None]:
    """Take the option *name* out of the query of *url*. Return both; None: it is not there. Raises: ConfigError."""
    query = _split(url).query
    options = [option.partition("=") for option in query.split("&")]
    given = [value for key, _, value in options if key == name]
    rest = "&".join("".join(option) for option in options if option[0] != name)
    # Not by urlunsplit, which would write file:///a for file:/a.
    return url.replace(f"?{query}", f"?{rest}" if rest else "", 1) if given else url, given[-1] if given else None


def safe_sink_url(url: str) -> str:
    """Return *url* for messages and logs: without user, password, query and fragment.

    The path of a webhook is left out too: often it is its password.
    """
    parts = urlsplit(url)
    host = f"//{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""
    path = "/…" if parts.scheme in ("http", "https") and parts.path.strip("/") else parts.path
    return f"{parts.scheme}:{host}{path}" if parts.scheme else path


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may quote a password
        raise ConfigError("the sink's URL cannot be read: its host is malformed") from None
    # A password that is cut at its ? would be neither seen as one nor hidden. The path of a webhook may have an @, and
    # the options of syslog, which has no users.
    cut = ":" in parts.netloc and "@" not in parts.netloc and "@" in f"{parts.path}{parts.query}{parts.fragment}"
    if cut and parts.scheme in SCHEMES and parts.scheme not in ("http", "https", "syslog", "syslog+tls"):
        raise ConfigError("the sink's URL has an @ after its host: write / ? # @ in a password as %2F %3F %23 %40")
    return parts


def _load(place: str, extra: str) -> Any:
    module, _, attribute = place.partition(":")
    try:
        if not extra:
            return getattr(import_module(module), attribute)
        with extra_needed(extra, "this sink"):
            return getattr(import_module(module), attribute)
    except ImportError as error:
        raise ConfigError(f"this sink cannot be loaded ({error}): check that {module} can be imported") from error
    except AttributeError as error:
        raise ConfigError(f"{module} has no {attribute!r}") from error
