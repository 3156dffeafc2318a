"""The logger of all packages. Errors in the application's logging code do not end eventbus threads.

Handlers, filters and record factories belong to the application. If one raised, it would end the logging thread of
eventbus, or break a call that promises not to raise.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any, Final

#: With this the names of our threads begin, and of no others.
OURS: Final = "eventbus-"


class GuardedLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that prints exceptions of logging code to standard error, as `logging` does for its own handlers.

    In threads of eventbus, no exception is raised. In other threads Ctrl-C and similar ones are: the application
    handles them.
    """

    def log(self, level: int, msg: object, *args: object, stacklevel: int = 1, **kwargs: Any) -> None:
        try:
            self.logger.log(level, msg, *args, stacklevel=stacklevel + 1, **kwargs)
        except BaseException as error:
            if not isinstance(error, Exception) and not threading.current_thread().name.startswith(OURS):
                raise
            if logging.raiseExceptions and sys.stderr:
                with suppress(Exception):
                    traceback.print_exc()
                    sys.stderr.write(f"eventbus: a line could not be logged: {str(msg) % args if args else msg}\n")


log: Final = GuardedLog(logging.getLogger("eventbus"))
