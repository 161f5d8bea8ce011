"""Which engine a session runs on: the one that is named, AICF's own if none is, and by `auto` the first that can.

`auto` asks the engines in the order of the registry, passes over those that were never verified, and keeps why each
was rejected. No other name ever leads to another engine.
"""

from __future__ import annotations

from aicf.engines.base import Engine, EngineSession
from aicf.engines.follows import refuse_unfollowed
from aicf.engines.registry import AUTO, OWN, engine_names, get_engine
from aicf.engines.report import Report
from aicf.engines.request import Request
from aicf.errors import AicfError, BackendUnavailable, EngineError, PolicyError, UnsupportedOp, quoted

_REJECTIONS = (UnsupportedOp, PolicyError, BackendUnavailable, EngineError)
"""What speaks against an engine; any other error is about the model, and every engine would have it."""


def open_session(name: str | None, request: Request, report: Report) -> tuple[str, EngineSession, str]:
    """A session over the engine that a caller asks for: its name, the session, and why if `auto` chose it.

    Raises:
        PolicyError: there is no such engine, it does not follow what is asked for, or `auto` finds none.
        AicfError: as `InferenceSession`.
    """
    if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PolicyError(
            f"engine: {quoted(name)} is no name; registered: {', '.join([*engine_names(), AUTO])}"
        )
    if name == AUTO:
        return _first_that_can(request, report)
    engine = _named(name or OWN)
    return engine.name, _open(engine, request, report), ""


def _named(name: str) -> Engine:
    if name not in engine_names() and ":" in name:
        raise PolicyError(
            f"engine: there is no {quoted(name)}; a backend of AICF and its level are target={quoted(name)}"
        )
    return get_engine(name)


def _open(engine: Engine, request: Request, report: Report) -> EngineSession:
    refuse_unfollowed(engine, request)
    return engine.prepare(request, report).session()


def _first_that_can(request: Request, report: Report) -> tuple[str, EngineSession, str]:
    rejected: list[str] = []
    for name in engine_names():
        try:
            engine = get_engine(name)
            _check_verified(engine)
            session = _open(engine, request, report)
        except _REJECTIONS as error:
            rejected.append(f"{name}: {_clause(error)}")
            continue
        rest = "; ".join(rejected) or "no engine comes before it"
        return name, session, f"it is the first that takes this model as asked ({rest})"
    raise PolicyError(f"engine: none takes this model as asked; {'; '.join(rejected)}")


def _check_verified(engine: Engine) -> None:
    if not engine.is_verified:
        raise PolicyError("it is unverified, so it must be named")


def _clause(error: AicfError) -> str:
    """What an error says, without its way out."""
    return error.message.partition(";")[0]
