"""`aicf policy`: the decisions of a compiled program as a file, a model compiled with such a file, and what helps to
write one by hand: a check against a model, several files as one, the schema for editors."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicf.errors import PolicyError
from aicf.tools.cli.arguments import Dims, Model, Target, Threads, Training, joined_dims
from aicf.tools.cli.compile_command import compile_command
from aicf.tools.cli.outputs import check_output, write_text

if TYPE_CHECKING:
    from aicf.compilation.record import Options
    from aicf.compilation.saved_program import SavedProgram
    from aicf.policies.policy import Policy

_PolicyFile = Annotated[
    Path, typer.Argument(metavar="POLICY", help="A .yaml or .json file.", show_default=False)
]
_PolicyFiles = Annotated[
    list[Path], typer.Argument(metavar="POLICY", help="Files, .yaml or .json.", show_default=False)
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Policy to write, .yaml or .json; it is printed as YAML by default.",
        show_default=False,
    ),
]


def extract_command(
    program: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM", help="An artifact, or an .mlir file of final emit IR.", show_default=False
        ),
    ],
    output: _Output = None,
) -> None:
    """Write every decision of a compiled program as a policy.

    Which ops are one instruction, the kernel and record of each, streams. Applied to the same model and target, it
    gives the same program; edited, it gives that program with the edit.
    """
    from aicf.compilation.saved_program import read_saved_program

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


def _apply_signature() -> inspect.Signature:
    """The arguments of `aicf compile`, with the policy as the second one; typer reads them."""
    own = inspect.signature(compile_command, eval_str=True)
    policy = own.parameters["policy"].replace(annotation=_PolicyFile, default=inspect.Parameter.empty)
    model, *others = (each for each in own.parameters.values() if each.name != "policy")
    return own.replace(parameters=[model, policy, *others])


vars(apply_command)["__signature__"] = _apply_signature()


def merge_command(files: _PolicyFiles, output: _Output = None) -> None:
    """Put policy files together.

    All that any of them says. A field at its default says nothing. Files that contradict each other are an error that
    names the field and both files.
    """
    policy = _merged(files)
    if output is None:
        print(policy.to_yaml(), end="")
        return
    check_output(output, "the policy", *files)
    policy.save(output, f"Merged from {', '.join(map(str, files))}")
    print(f"{output}: {len(files)} files, which state {', '.join(policy.stated()) or 'nothing'}")


def validate_command(
    model: Model,
    files: _PolicyFiles,
    target: Target = None,
    dims: Dims = None,
    threads: Threads = 1,
    training: Training = False,
) -> None:
    """Check policies against a model and a target.

    Every decision is made as by `aicf compile`, and no code is made. Several files are put together first.
    """
    policy = _merged(files)
    try:
        policy.validate(model, target, dims=joined_dims(dims), threads=threads, training=training)
    except PolicyError as error:
        # Where it is in the files is the path in the message; which of several files has it is not known any more.
        if error.location is None and len(files) == 1:
            error.locate(str(files[0]))
        raise
    names = ", ".join(map(str, files))
    print(f"{names}: legal for {model}: it states {', '.join(policy.stated()) or 'nothing'}")


def schema_command(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write, as in policy.schema.json; it is printed by default.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of policy files.

    Name it in a file, "$schema": "policy.schema.json", and an editor completes and checks the fields.
    """
    from aicf.policies.policy_schema import shipped_schema

    if output is None:
        print(shipped_schema(), end="")
        return
    check_output(output, "the schema")
    write_text(output, "the schema", shipped_schema())
    print(f"{output}: the schema of policy files")


def _merged(files: list[Path]) -> Policy:
    """The policies of all files as one. Raises PolicyError, which names the files, if two contradict each other."""
    from aicf.policies.policy import Policy

    policy = Policy.load(files[0])
    before = str(files[0])
    for path in files[1:]:
        policy = policy.merge(Policy.load(path), (before, str(path)))
        before = f"{before} with {path}"
    return policy
