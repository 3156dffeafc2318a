"""Finds out whether a bus is for known users alone, by asking its server: a password in an url says nothing."""

from __future__ import annotations

import os
import stat

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.address import parse_address
from eventbus.broker.connection.plain_client import plain_client
from eventbus.broker.health.partition_status import node_of
from eventbus.broker.keys import bus_key
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, ConfigError

#: The user of whoever does not say who he is; with `requirepass`, of everybody who knows the one password.
DEFAULT_USER = "default"


def check_users(bus: Bus) -> None:
    """Check that we come as a user of our own, and that the server lets nobody in who says no name.

    A socket in a folder that only our own user may enter is as good: the kernel asks there.

    Raises: ConfigError: it is not so; says what to do.  BusUnavailable.
    Redis:  ACL WHOAMI as we are; then EXISTS on the bus's key, by a connection without any credentials.
    """
    if _is_private(parse_address(bus.url).socket):
        return
    client = bus.client(name="eventbus-users")
    try:
        with redis_errors(bus.url):
            user = node_of(client, bus.keys[0].meta).execute_command("ACL", "WHOAMI").decode()
    except BusRefused as error:
        raise ConfigError(f"{bus} does not say as whom we come: {error}; give the user +acl|whoami") from error
    finally:
        client.close()
    if user == DEFAULT_USER:
        raise ConfigError(f"{bus} knows us as the user {DEFAULT_USER}, as everybody who has no name of his own")
    if _lets_strangers_in(bus):
        raise ConfigError(f"{bus} lets in whoever connects, as the user {DEFAULT_USER}: ACL SETUSER {DEFAULT_USER} off")


def _is_private(socket: str) -> bool:
    try:
        folder = os.stat(os.path.dirname(socket)) if socket else None
    except OSError:
        return False
    return folder is not None and folder.st_uid == os.geteuid() and not stat.S_IMODE(folder.st_mode) & 0o077


def _lets_strangers_in(bus: Bus) -> bool:
    address = msgspec.structs.replace(parse_address(bus.url), username="", password="")
    stranger = plain_client(address, name="eventbus-stranger")
    try:
        with redis_errors(bus.url):
            stranger.exists(bus_key(bus.prefix))
    except BusRefused:
        return False
    finally:
        stranger.close()
    return True


__all__ = ["DEFAULT_USER", "check_users"]
