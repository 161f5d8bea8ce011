"""Which device times the cases of a backend: the one that the backend names."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import cast

from aicf.backends.base import TimedBackend
from aicf.backends.registry import backend_names, get_backend, resolve_target
from aicf.errors import BackendUnavailable, PolicyError
from aicf.runtime.device import devices
from aicf.support.arguments import instance_from, text_from
from aicf.tuning.cases import Setting
from aicf.tuning.measure import Device


def check_device(target: str) -> None:
    """Raises as `open_device`, and PolicyError for an unknown target; asked before cases are compiled for minutes."""
    backend, named, _ = text_from(target, PolicyError, "the target").partition(":")
    if named:
        resolve_target(target)
    _timing_of(backend)
    reason = f"there is no device of backend '{backend}' here"
    try:
        if devices(backend):
            return
    except BackendUnavailable as error:
        reason = error.message
    raise BackendUnavailable(
        f"{reason}; `aicf tune MODEL --prepare FOLDER` compiles without one, `aicf tune --measure FOLDER` measures "
        "where it is"
    )


def open_device(setting: Setting) -> Device:
    """The device of this machine that cases are for.

    Raises:
        PolicyError: there is no such backend, or its programs cannot be timed one instruction at a time.
        BackendUnavailable: there is no such device here.
    """
    instance_from(setting, Setting, PolicyError, "what a device has to know", "Prepared.setting")
    return cast("Device", resolve_name(_timing_of(setting.backend))(setting))


def _timing_of(backend: str) -> str:
    found = get_backend(backend)
    if not isinstance(found, TimedBackend):
        raise PolicyError(f"backend '{backend}' cannot be measured; those that can: {', '.join(_timed())}")
    return found.timing


def _timed() -> list[str]:
    """The backends that import here and can be measured."""
    names: list[str] = []
    for name in backend_names():
        try:
            names += [name] if isinstance(get_backend(name), TimedBackend) else []
        except BackendUnavailable:
            continue
    return names
