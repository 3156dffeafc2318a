"""Checks that an API worker requires authentication, with a request that has no credentials."""

from __future__ import annotations

import msgspec

from eventbus.client.address import ApiAddress
from eventbus.client.connection import ApiConnection
from eventbus.client.transport import BUS_PATH
from eventbus.errors import BusRefused, ConfigError


def check_known(address: ApiAddress) -> None:
    """Check that the address is TLS, that we have credentials, and that the API refuses anonymous requests.

    Raises: ConfigError: one of these fails; the message has the cure.  BusUnavailable.
    """
    ours = address.settings
    if not address.tls:
        raise ConfigError(f"{address} is not https: others on the network could change the pods that run here")
    if not (ours.token or ours.token_file or ours.client_cert):
        raise ConfigError(f"no credentials for {address}: set EVENTBUS_TOKEN_FILE or EVENTBUS_CLIENT_CERT")
    nobody = msgspec.structs.replace(ours, token="", token_file="", client_cert="", client_key="")
    stranger = ApiConnection(msgspec.structs.replace(address, settings=nobody))
    try:
        stranger.call("GET", BUS_PATH)
    except BusRefused:
        return
    finally:
        stranger.close()
    raise ConfigError(f"{address} accepts anonymous requests: start the API worker with --token-file or --client-ca")
