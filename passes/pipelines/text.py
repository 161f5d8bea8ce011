"""Pass pipelines as text: ``"assign-ids,fold-constants{limit=4}"`` to pass objects.

Unknown names and options become a :class:`PolicyError` that lists close matches and what is legal. Which
passes a named pipeline runs is decided in that pipeline's own file, not here.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, ParameterListType
from xdsl.utils.arg_spec import parse_pipeline as parse_xdsl_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ShrinkException

from aicf.errors import AicfError, InvalidIR, PolicyError, did_you_mean
from aicf.passes.fusion.pinned_groups import UnformedGroup, explained
from aicf.passes.support.identity import position_of

PassTable = Mapping[str, Callable[[], type[ModulePass]]]
"""Pass name to a factory of its class."""

_MAX_NAMES_LISTED = 24


def parse_pipeline(
    text: str, passes: PassTable, rewrite_option: Callable[[str, str, str], str] | None = None
) -> tuple[ModulePass, ...]:
    """Parse a pipeline.

    Args:
        text: Pass names with options, ``name{option=value other="a:b"},name``.
        passes: The passes that may be named.
        rewrite_option: ``(pass name, option, value) -> value`` for string options, applied before the pass is
            made; the driver resolves ``target=cpu`` with it.

    Raises:
        PolicyError: The text is malformed, or a pass, an option or a value is unknown.
    """
    return tuple(_make_pass(spec, passes, rewrite_option) for spec in _parse_specs(text))


def _parse_specs(text: str) -> list[ArgSpec]:
    try:
        return list(parse_xdsl_pipeline(text))
    except ArgSpecParseError as error:
        reason = str(error).strip().splitlines()[-1].strip(" ^")
        raise PolicyError(
            f"malformed pipeline {text!r}: {reason}; write name{{option=value}},name and quote values that "
            "hold ':' or '/', as in set-target{target=\"cpu:x86-64-v3\"}"
        ) from None


def _make_pass(
    spec: ArgSpec, passes: PassTable, rewrite_option: Callable[[str, str, str], str] | None
) -> ModulePass:
    if spec.name not in passes:
        raise PolicyError(f"unknown pass {spec.name!r}; {suggest(spec.name, passes)}")
    pass_class = passes[spec.name]()
    legal = pass_options(pass_class)
    parameters: dict[str, ParameterListType] = {}
    for option, values in spec.normalize_parameter_names().parameters.items():
        name = option.replace("_", "-")
        if name not in legal:
            known = suggest(name, legal) if legal else "it has no options"
            raise PolicyError(f"pass {spec.name!r} has no option {name!r}; {known}")
        parameters[option] = tuple(
            rewrite_option(spec.name, name, value) if rewrite_option and isinstance(value, str) else value
            for value in values
        )
    try:
        return pass_class.from_spec(ArgSpec(spec.name, parameters))
    except (ValueError, TypeError) as error:
        listing = ", ".join(f"{name}: {kind}" for name, kind in legal.items())
        raise PolicyError(f"pass {spec.name!r}: {error}; its options are {listing or 'none'}") from error


def apply_pass(module_pass: ModulePass, context: Context, module: ModuleOp) -> None:
    """Run one pass on a module.

    Raises:
        AicfError: Whatever went wrong, with the name of the pass where the pass itself does not tell.
    """
    try:
        module_pass.apply(context, module)
    except UnformedGroup as error:
        raise explained(error, module) from error
    except (AicfError, ShrinkException):
        raise
    except DiagnosticException as error:
        raise InvalidIR(f"pass {module_pass.name!r}: {error}", location=position_of(module)) from error
    except Exception as error:
        raise AicfError(
            f"pass {module_pass.name!r} failed: {type(error).__name__}: {error}; --debug prints the traceback",
            location=position_of(module),
        ) from error


def pass_summary(pass_class: type[ModulePass]) -> str:
    """What a pass does, in a line: the first paragraph of its file, without the name of the pass before it."""
    text, _, _ = (inspect.getdoc(sys.modules[pass_class.__module__]) or "").partition("\n\n")
    return " ".join(re.sub(rf"^`+{pass_class.name}(\{{[^`]*\}})?`+: ", "", text).replace("``", "`").split())


def pass_options(pass_class: type[ModulePass]) -> dict[str, str]:
    """Legal options of a pass as written in a pipeline, with their types; those of all pipelines come last."""
    hints = get_type_hints(pass_class)
    fields = [field for field in dataclasses.fields(pass_class) if field.init]
    ordered = [field for field in fields if field.kw_only is not True]
    ordered += [field for field in fields if field.kw_only is True]
    return {field.name.replace("_", "-"): describe_type(hints[field.name]) for field in ordered}


def describe_type(hint: Any) -> str:
    """An option's type in words: ``int``, ``str``, ``list of int``, ``int (optional)``."""
    arguments = [argument for argument in get_args(hint) if argument is not Ellipsis]
    if get_origin(hint) is tuple:
        return "list of " + " | ".join(sorted({describe_type(argument) for argument in arguments}))
    if get_origin(hint) is Literal:
        return " | ".join(str(argument) for argument in arguments)
    if arguments:
        listed = " | ".join(describe_type(argument) for argument in arguments if argument is not NoneType)
        return f"{listed} (optional)" if NoneType in arguments else listed
    return getattr(hint, "__name__", str(hint))


def suggest(name: str, legal: Mapping[str, object]) -> str:
    """The way out of an unknown name: close matches, or the legal names when they are few."""
    close = did_you_mean(name, legal)
    if len(legal) <= _MAX_NAMES_LISTED:
        return f"{close} legal: {', '.join(sorted(legal))}".strip()
    return close or "aicf-opt --list-passes lists all"
