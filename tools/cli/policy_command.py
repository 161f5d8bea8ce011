"""`aicf policy`: the decisions of a compiled program as a file, and a model compiled with such a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aicf.tools.cli.compile_command import compile_command
from aicf.tools.cli.outputs import check_output

if TYPE_CHECKING:
    from aicf.decided import Decided


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
    from aicf.decided import read_decided

    if output is not None:
        check_output(output, "the policy")
    decided = read_decided(program)
    if output is None:
        print(decided.policy.to_yaml(), end="")
        return
    decided.policy.save(output, _how_to_apply(decided))
    kernels = len(decided.policy.kernel.kernels)
    print(f"{output}: {kernels} kernel{'s' if kernels != 1 else ''} of {program}")


def _how_to_apply(decided: Decided) -> str:
    options, plan = decided.options, decided.plan
    dims = f" --dims '{options.dims}'" if options is not None and options.dims else ""
    threads = f" --threads {plan.threads}" if plan.threads > 1 else ""
    target = f"--target {plan.backend}:{plan.arch}{dims}{threads}"
    return f"Decisions of {decided.path}: aicf policy apply MODEL THIS -o OUTPUT {target}"


def apply_command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The model, an .mlir file.", show_default=False)
    ],
    policy: Annotated[
        Path, typer.Argument(metavar="POLICY", help="A .yaml or .json file.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Artifact to write, as in model.aicf.", show_default=False)
    ],
    weights: Annotated[
        Path | None, typer.Option(help="Weights, a .safetensors file.", show_default=False)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Such as cpu or cpu:x86-64-v3; this machine's cpu by default.", show_default=False),
    ] = None,
    dims: Annotated[
        str, typer.Option(help="Sizes of symbolic dimensions, as in 'N=1,540;M=4'.", show_default=False)
    ] = "",
    tuning: Annotated[
        Path | None,
        typer.Option(help="Measured times, a file that `aicf tune` wrote.", show_default=False),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads that run the program together.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="Name of the model; the file's by default.", show_default=False)
    ] = None,
) -> None:
    """Compile a model with the decisions in a policy; the same as `aicf compile --policy`."""
    compile_command(model, output, weights, target, dims, str(policy), tuning, threads, name)
