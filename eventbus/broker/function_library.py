"""The function libraries on the servers: loads that of this build beside those of other builds."""

from __future__ import annotations

from eventbus.broker.build import build, library, library_name
from eventbus.broker.connection.connect import Client, primaries
from eventbus.broker.pending_call import call_function
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, EventBusError, FunctionsForbidden, FunctionsMissing
from eventbus.util.log import log

#: The cure of every error that says that functions of this build are missing.
LOAD_CURE = "run `eventbus functions load` of this version as a user of role admin"


def load(client: Client) -> bool:
    """Load this build's library on every server that takes writes and lacks it. Returns whether any did.

    Nothing is replaced: libraries of other builds have other names.

    Raises: FunctionsMissing: this user may not load functions; the message says who may.  BusUnavailable.
    """
    loaded = False
    for server in primaries(client):
        try:
            with redis_errors():  # asked first: a user that may not load is refused without the whole source
                if server.execute_command("FUNCTION", "LIST", "LIBRARYNAME", library_name()):
                    continue
                server.function_load(library())
            loaded = True
            log.info("loaded the functions of build %s", build())
        except BusRefused as error:
            raise FunctionsMissing(
                f"the functions of build {build()} are not loaded, and this user may not load them: {LOAD_CURE}",
                cure=LOAD_CURE,
            ) from error
        except EventBusError as error:
            if "already exists" not in str(error):  # by another process, in this moment
                raise
    return loaded


def load_missing(client: Client) -> None:
    """Load this build's library unless it is there. Raises: FunctionsMissing: this user may not.  BusUnavailable."""
    try:
        call_function(client, "build", ())
    except FunctionsForbidden:
        raise
    except FunctionsMissing:
        load(client)


def refusal(client: Client, error: FunctionsForbidden) -> EventBusError:
    """Return *error*, or a BusRefused if the user may call functions of this build, only not that one.

    Redis: FCALL build, which every role may.
    """
    try:
        call_function(client, "build", ())
    except EventBusError:
        return error
    return BusRefused(
        "the server does not permit this to the user: its role lacks that function (`eventbus acl --role …` prints "
        "what a role may)"
    )


__all__ = ["LOAD_CURE", "load", "load_missing", "refusal"]
