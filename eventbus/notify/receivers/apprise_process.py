"""The program that sends one message with Apprise: a `Message` on standard input, the result as exit code.

Run by `AppriseReceiver` as `python -m eventbus.notify.receivers.apprise_process`. It imports Apprise, 44 MB.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
from typing import Final

import msgspec

from eventbus.model.decodable import decodable

#: Exit codes. Others are crashes: 1 is an exception of Python.
FAILED: Final = 10  #: the service refused the message or did not answer
INVALID: Final = 11  #: no plugin accepts the URL
#: Address space of the process, bytes.
MAX_MEMORY: Final = 1 << 31


class Message(msgspec.Struct, frozen=True):
    """One message. *kind*: a NotifyType of Apprise. *seconds*: the longest run of the process."""

    url: str
    title: str
    body: str
    kind: str
    seconds: float


def main() -> int:
    """Send the message of standard input. Returns: the exit code."""
    message = msgspec.json.decode(sys.stdin.buffer.read(), type=decodable(Message))
    # The sender kills this process at its limit. If the sender has died, the alarm does.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, message.seconds)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    from apprise import Apprise
    from apprise.common import OverflowMode

    service = Apprise.instantiate(message.url, suppress_exceptions=True)
    if service is None:
        return INVALID
    if "overflow=" not in message.url:
        service.overflow_mode = OverflowMode.TRUNCATE
    sender = Apprise()
    sender.add(service)
    sent = sender.notify(message.body, title=message.title, notify_type=message.kind, body_format="text")
    return 0 if sent else FAILED


if __name__ == "__main__":
    sys.exit(main())
