"""`aicf policy`: the decisions of a compiled program as a file, and a model compiled with such a file."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicf.tools.cli.compile_command import compile_command
from aicf.tools.cli.outputs import check_output

if TYPE_CHECKING:
    from aicf.compiled import Options
    from aicf.saved_program import SavedProgram


def extract_command(
    program: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM", help="An artifact, or an .mlir file of final emit IR.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Policy to write, .yaml or .json; it is printed as YAML by default.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write every decision of a compiled program as a policy.

    Which ops are one instruction, the kernel and record of each, streams. Applied to the same model and target, it
    gives the same program; edited, it gives that program with the edit.
    """
    from aicf.saved_program import read_saved_program

    if output is not None:
        check_output(output, "the policy", program)
    saved = read_saved_program(program)
    if output is None:
        print(saved.policy.to_yaml(), end="")
        return
    saved.policy.save(output, _how_to_apply(saved))
    kernels = len(saved.policy.kernel.kernels)
    print(f"{output}: {kernels} kernel{'s' if kernels != 1 else ''} of {program}")


def _how_to_apply(saved: SavedProgram) -> str:
    options, plan = saved.options, saved.plan
    dims = f" --dims '{options.dims}'" if options is not None and options.dims else ""
    dims += f" --values '{options.values}'" if options is not None and options.values else ""
    threads = f" --threads {plan.threads}" if plan.threads > 1 else ""
    target = (
        f"--target {plan.backend}:{plan.arch}{dims}{threads}{'' if options is None else _training(options)}"
    )
    return f"Decisions of {saved.path}: aicf policy apply MODEL THIS -o OUTPUT {target}"


def _training(options: Options) -> str:
    """Options that change what is computed in training; what a memory budget led to is in the policy."""
    flags = " --check-finite" * options.check_finite + " --training" * options.training
    return (f" --meta {options.meta}" if options.meta else "") + flags


def apply_command(**options: Any) -> None:
    """Compile a model with the decisions in a policy; the same as `aicf compile --policy`."""
    options["policy"] = str(options["policy"])
    compile_command(**options)


_PolicyFile = Annotated[
    Path, typer.Argument(metavar="POLICY", help="A .yaml or .json file.", show_default=False)
]


def _apply_signature() -> inspect.Signature:
    """The arguments of `aicf compile`, with the policy as the second one; typer reads them."""
    own = inspect.signature(compile_command, eval_str=True)
    policy = own.parameters["policy"].replace(annotation=_PolicyFile, default=inspect.Parameter.empty)
    model, *others = (each for each in own.parameters.values() if each.name != "policy")
    return own.replace(parameters=[model, policy, *others])


vars(apply_command)["__signature__"] = _apply_signature()
