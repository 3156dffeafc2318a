"""The logger of all rooms. What log code of the application raises ends no thread of ours.

Handlers, filters and factories of records are the application's. One that raises would end whoever logs: a thread of
ours, for ever, or a call that promises not to raise.
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
    """A logger that shows on standard error what log code raises, as `logging` does for its own handlers.

    In a thread of ours nothing gets through. Elsewhere Ctrl-C and the like do: they are for the application.
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

__all__ = ["OURS", "GuardedLog", "log"]
