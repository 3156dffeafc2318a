"""TLS: turns an url's options into those of redis-py, and explains a failed handshake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from eventbus.broker.connection.address import TLS_FILES, TLS_FOLDERS, Address
from eventbus.errors import BusRefused, ConfigError, EventBusError

_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")
_VERSIONS = ("TLSv1.2", "TLSv1.3")
_CERT_REQS = ("required", "optional", "none")

#: OpenSSL's number of an error of a certificate → the cure
_VERIFIED: dict[int, str] = {
    9: "its certificate is not valid yet: correct the clock here or there, or renew the certificate",
    10: "its certificate has expired: renew it there",
    62: "its certificate is for another name: connect by a name or address that stands in it",
    64: "its certificate is for another name: connect by a name or address that stands in it",
}
_UNTRUSTED = "its certificate is not trusted: add ?ssl_ca_certs=/path/ca.pem"
_VERSION = "it speaks no version of TLS that we do: see ?ssl_min_version, and tls-protocols of the server"
_OURS = "it wants a certificate of ours: add ?ssl_certfile=/path/c.pem&ssl_keyfile=/path/key.pem"
#: part of OpenSSL's reason for ending a handshake → the cure
_REASONS: dict[str, str] = {
    "CERTIFICATE_REQUIRED": _OURS,
    "UNKNOWN_CA": "it does not trust our certificate: take one of the authority that the server knows",
    "BAD_CERTIFICATE": "it refused our certificate: take one of the authority that the server knows",
    "CERTIFICATE_EXPIRED": "our certificate (ssl_certfile) has expired: renew it",
    "PROTOCOL_VERSION": _VERSION,
    "UNSUPPORTED_PROTOCOL": _VERSION,
    "HANDSHAKE_FAILURE": "it shares no version or cipher of TLS with us: see the server's tls-protocols, tls-ciphers",
}
_NO_TLS = "no TLS handshake: rediss:// needs a server that speaks TLS, else use redis://"


def tls_options(address: Address) -> dict[str, Any]:
    """Return redis-py's options for a TLS connection; its files are read once to see that they can be used.

    Raises: ConfigError: an option or a file cannot be used; one line that names it.
    """
    import ssl

    given, shown = address.options, address.shown
    reqs = _one_of(given.get("ssl_cert_reqs", "required"), _CERT_REQS, "ssl_cert_reqs", shown)
    options: dict[str, Any] = {
        "ssl_cert_reqs": reqs,
        "ssl_check_hostname": reqs != "none" and checks_name(address),
        **{name: _existing(given[name], name, shown) for name in (*TLS_FILES, *TLS_FOLDERS) if name in given},
    }
    if version := given.get("ssl_min_version"):
        name = _one_of(version, _VERSIONS, "ssl_min_version", shown)
        options["ssl_min_version"] = ssl.TLSVersion[name.replace(".", "_")]
    if "ssl_certfile" in given or "ssl_keyfile" in given:
        # Without a word OpenSSL would ask for it on the terminal.
        options["ssl_password"] = given.get("ssl_password", "")
        if "ssl_certfile" not in given:
            raise ConfigError(f"{shown}: ssl_keyfile needs a certificate: add ssl_certfile=/path/cert.pem")
    _load(options, shown)
    return options


def checks_name(address: Address) -> bool:
    """Return True if the server's certificate must be for the host name we connect to. Raises: ConfigError."""
    word = address.options.get("ssl_check_hostname", "true").lower()
    return _one_of(word, (*_YES, *_NO), "ssl_check_hostname", address.shown) in _YES


def explain(error: BaseException | None) -> tuple[type[EventBusError], str] | None:
    """Translate a failed TLS handshake into an error class and its cure; None: *error* is something else."""
    kinds = {kind.__name__ for kind in type(error).__mro__}  # by name: ssl takes a tenth of the import time
    if "SSLError" not in kinds:
        return None
    if "SSLCertVerificationError" in kinds:
        return BusRefused, _VERIFIED.get(getattr(error, "verify_code", 0), _UNTRUSTED)
    if "SSLEOFError" in kinds:  # either way a server may hang up before its reason is read
        return BusRefused, f"{_NO_TLS}; if it does, {_OURS}"
    reason = str(getattr(error, "reason", "") or "")
    return BusRefused, next((cure for part, cure in _REASONS.items() if part in reason), _NO_TLS)


def _load(options: dict[str, Any], shown: str) -> None:
    """Read the files as a connection will, to see that they can be used."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name, argument in (("ssl_ca_certs", "cafile"), ("ssl_ca_path", "capath")):
        if name in options:
            try:
                context.load_verify_locations(**{argument: options[name]})
            except OSError as error:  # ssl.SSLError is one
                problem = f"holds no certificate in PEM form ({_words(error)})"
                if not isinstance(error, ssl.SSLError):
                    problem = f"cannot be read ({_words(error)})"
                raise ConfigError(f"{shown}: {name}={options[name]} {problem}") from error
    if certificate := options.get("ssl_certfile"):
        key = options.get("ssl_keyfile")
        try:
            context.load_cert_chain(certificate, key, options["ssl_password"])
        except OSError as error:
            raise ConfigError(f"{shown}: {_wrong_pair(error, certificate, key)}") from error


def _wrong_pair(error: OSError, certificate: str, key: str | None) -> str:
    where = f"ssl_certfile={certificate}" + (f" and ssl_keyfile={key}" if key else "")
    reason = getattr(error, "reason", "")  # that of an OSError is not there
    if getattr(error, "library", None) is None:
        return f"{where} cannot be read ({_words(error)})"
    if reason == "KEY_VALUES_MISMATCH":
        return f"{where} do not belong together: give the key that the certificate was made for"
    # OpenSSL says the same of a wrong password and of no key at all.
    if b"ENCRYPTED" in Path(key or certificate).read_bytes():
        return f"{where}: the key is encrypted, and ssl_password is missing or wrong"
    hint = "" if key else "; is the key in another file? add ssl_keyfile="
    return f"{where} hold no certificate and key in PEM form ({_words(error)}){hint}"


def _existing(path: str, name: str, shown: str) -> str:
    if not os.path.exists(path):
        raise ConfigError(f"{shown}: {name}={path}: there is no such file")
    if Path(path).is_dir() and name in TLS_FILES:
        hint = ": a folder of certificates is ssl_ca_path" if name == "ssl_ca_certs" else ""
        raise ConfigError(f"{shown}: {name}={path} is a folder{hint}; give a file")
    if not Path(path).is_dir() and name in TLS_FOLDERS:
        raise ConfigError(f"{shown}: {name}={path} is no folder: a file of certificates is ssl_ca_certs")
    return path


def _one_of(word: str, valid: tuple[str, ...], name: str, shown: str) -> str:
    if word not in valid:
        raise ConfigError(f"{shown}: {name} is {word!r}; valid are {', '.join(valid)}")
    return word


def _words(error: OSError) -> str:
    return str(getattr(error, "reason", "") or error.strerror or error)
