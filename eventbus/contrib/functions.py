"""A decorator that records the outcome of a function's calls as events."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from eventbus.model.event import ObjectReference
from eventbus.model.reference import reference_to
from eventbus.model.validation import MAX_NEW_MESSAGE
from eventbus.record.default import make_event_recorder
from eventbus.record.recorder import EventRecorder
from eventbus.util.log import log
from eventbus.util.text import cut_bytes

P = ParamSpec("P")
R = TypeVar("R")


def recorded(
    object: Any, reason: str, *, recorder: EventRecorder | None = None, namespace: str = "default"
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Record each call of a function: *reason* when it returns, a Warning `<reason>Failed` when it raises.

        @recorded(lambda user, **_: {"kind": "User", "name": user}, "Billed")
        def bill(user, amount): ...

    Also for `async def`. The exception is raised unchanged, and its text is in the message. Cancelled or interrupted
    calls are not recorded, because their result is unknown. Never blocks, and never raises by itself.

    Args:     object: the object of the events: any value that `EventRecorder.event` accepts, or a callable that returns
              it from the call's arguments. It is called before the function.
              reason: CamelCase.
              recorder: None: `make_event_recorder` with the function's module, at the first call. If that fails
              because a setting is wrong, the error is logged once and nothing is recorded.
              namespace: for objects without a namespace of their own.
    Raises:   TypeError: when decorating a generator: its call returns before its body has run.
              InvalidEvent: when decorating: *object* is a string or a mapping that names no object.
    """
    about = _placed(object, namespace)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("recorded() is for functions and coroutines; a generator's call only makes it")
        return _decorate(function, _Calls(function, about, reason, recorder, namespace))

    return decorate


class _Calls:
    """Records the calls of one function."""

    def __init__(
        self,
        function: Callable[..., object],
        about: object,
        reason: str,
        recorder: EventRecorder | None,
        namespace: str,
    ) -> None:
        # A nested function is `outer.inner` to a reader; `<locals>` is Python's own word.
        self._name = getattr(function, "__qualname__", repr(function)).replace(".<locals>", "")
        self._module = getattr(function, "__module__", None) or "recorded"
        self._about = about
        self._reason = reason
        self._recorder = recorder
        self._namespace = namespace
        self._gave_up = False

    def object_of(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Return the object of this call; None: it cannot be determined, and the log says why."""
        if not callable(self._about):
            return self._about
        try:
            return _placed(self._about(*args, **kwargs), self._namespace)
        except Exception as error:  # it is the caller's, and must not keep the function from being called
            log.error("no event for a call of %s: its object cannot be made: %r", self._name, error)
            return None

    def returned(self, about: object) -> None:
        self._record(about, "Normal", self._reason, f"{self._name} returned")

    def raised(self, about: object, error: Exception) -> None:
        self._record(about, "Warning", f"{self._reason}Failed", f"{self._name}: {described(error)}")

    def _record(self, about: object, event_type: str, reason: str, message: str) -> None:
        if about is not None and (recorder := self._find_recorder()):
            recorder.event(about, event_type, reason, cut_bytes(message, MAX_NEW_MESSAGE))

    def _find_recorder(self) -> EventRecorder | None:
        """Return the recorder.

        None: there cannot be one, which is logged at the first call; a function's result is worth more."""
        if self._recorder is None and not self._gave_up:
            try:
                self._recorder = make_event_recorder(self._module)
            except Exception as error:
                self._gave_up = True
                log.error("no events for calls of %s: no recorder can be made: %s", self._name, described(error))
        return self._recorder


def _placed(about: object, namespace: str) -> object:
    # Other objects are read when the event is recorded: they may change until then.
    return reference_to(about, namespace) if isinstance(about, str | Mapping | ObjectReference) else about


def described(error: BaseException) -> str:
    """Return `ValueError: its text`; the type alone if the exception cannot give its text."""
    try:
        text = str(error)
    except Exception:
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _decorate(function: Callable[P, R], calls: _Calls) -> Callable[P, R]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            about = calls.object_of(args, kwargs)
            try:
                result = await function(*args, **kwargs)
            except Exception as error:
                calls.raised(about, error)
                raise
            calls.returned(about)
            return result

        return cast(Callable[P, R], awaited)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        about = calls.object_of(args, kwargs)
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            calls.raised(about, error)
            raise
        calls.returned(about)
        return result

    return called
