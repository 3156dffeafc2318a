"""Finds out whether an API worker is for known users alone, by asking it as nobody."""

from __future__ import annotations

import msgspec

from eventbus.errors import BusRefused, ConfigError
from eventbus.remote.address import ApiAddress
from eventbus.remote.connection import ApiConnection
from eventbus.remote.transport import BUS_PATH


def check_known(address: ApiAddress) -> None:
    """Check that we come over TLS, as a user of our own, and that the API lets nobody in who says no name.

    Raises: ConfigError: it is not so; says what to do.  BusUnavailable.
    """
    ours = address.settings
    if not address.tls:
        raise ConfigError(f"{address} is no https: others on the way could say what runs here")
    if not (ours.token or ours.token_file or ours.client_cert):
        raise ConfigError(f"{address} does not learn who we are: set EVENTBUS_TOKEN_FILE, or EVENTBUS_CLIENT_CERT")
    nobody = msgspec.structs.replace(ours, token="", token_file="", client_cert="", client_key="")
    stranger = ApiConnection(msgspec.structs.replace(address, settings=nobody))
    try:
        stranger.call("GET", BUS_PATH)
    except BusRefused:
        return
    finally:
        stranger.close()
    raise ConfigError(f"{address} answers whoever asks: give it users (--token-file, --client-ca)")
