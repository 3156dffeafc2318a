"""Names and quantities as Kubernetes writes them."""

from __future__ import annotations

import re
from typing import Final

#: Characters of one part between two dots: DNS's limit.
MAX_LABEL: Final = 63
#: Characters of a whole DNS name.
MAX_SUBDOMAIN: Final = 253
#: A subdomain, a slash and a name of 63.
MAX_QUALIFIED: Final = MAX_SUBDOMAIN + 1 + MAX_LABEL

#: The API server's text about a label that is not one.
LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL)
_DNS_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_QUALIFIED: Final = re.compile("[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_dns_label(text: str) -> bool:
    """Return True for a DNS-1123 label: 1..63 of a-z, 0-9 and "-", beginning and ending with a letter or digit."""
    return len(text) <= MAX_LABEL and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Return True for a DNS-1123 subdomain: labels joined by ".", 1..253 characters in all."""
    return len(text) <= MAX_SUBDOMAIN and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Return True for 1..63 of letters, digits, "-", "_", ".", with an optional DNS subdomain and "/" before it."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return len(name) <= MAX_LABEL and _QUALIFIED.fullmatch(name) is not None


_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(n|u|m|k|M|G|T|P|E|[KMGTPE]i|[eE][+-]?\d+)?")
_FACTORS: Final = (
    {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3}
    | {suffix: 1000.0**power for power, suffix in enumerate("kMGTPE", 1)}
    | {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)}
)


def parse_quantity(text: object) -> float | None:
    """Return the number that *text* represents; None if it is not a quantity."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        return None
    number, suffix = match[1], match[2] or ""
    if suffix not in _FACTORS:
        return float(number + suffix)
    return float(number) * _FACTORS[suffix]
