"""Optional packages: a command that needs one names the extra that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from eventbus.errors import ConfigError

#: Extra → a module that only this extra installs.
EXTRAS: Final = {
    "agent": "psutil",
    "api": "aiohttp",
    "apprise": "apprise",
    "kafka": "confluent_kafka",
    "kubernetes": "lightkube",
    "mcp": "mcp",
    "metrics": "prometheus_client",
    "nats": "nats",
    "notify": "re2",
    "oidc": "jwt",
    "otlp": "opentelemetry.proto",
    "postgres": "psycopg",
    "s3": "obstore",
    "webhook": "cloudevents",
}


def has_extra(extra: str) -> bool:
    """Return True if *extra* is installed; of its packages nothing is imported."""
    try:
        return find_spec(EXTRAS[extra]) is not None
    except ModuleNotFoundError:  # the package that has the module
        return False


def is_needed(extra: str) -> str:
    """Return the words of an error: *extra* is missing, and how to install it."""
    return f"eventbus[{extra}] is needed: pip install 'eventbus[{extra}]'"


@contextmanager
def extra_needed(extra: str, asks: str = "") -> Iterator[None]:
    """Import the packages of *extra* in the block. *asks* names the feature that needs them, if it is optional.

    Raises: ConfigError: a package is missing, or cannot be loaded.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "eventbus":
            raise  # a bug in this package
        subject = f"{asks}: " if asks else ""
        why = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        raise ConfigError(f"{subject}{is_needed(extra)}{why}", cure=f"pip install 'eventbus[{extra}]'") from error
