"""Writing a visual report, for the commands that can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aicf.errors import ArtifactError
from aicf.support.files import reason_of, write_whole
from aicf.support.progress import progress
from aicf.tools.cli.outputs import check_output


def write_report(
    output: Path,
    model: Path,
    other: Path | None = None,
    measured: Sequence[Path] = (),
    *,
    passes: bool = True,
) -> None:
    """Writes the report of a compiled program, or of two, whole or not at all.

    Args:
        measured: Times of them that `aicf bench --json` wrote.
        passes: Whether to run their passes again, for the IR after each.

    Raises:
        ArtifactError: a file is damaged, or cannot be read or written.
        BackendUnavailable: the template engine is not installed.
        InputMismatch: a file is no compiled program, or times are of another one.
    """
    from aicf.report import gather_report, html_page

    check_output(output, "the report", model, other, *measured)
    with progress("reporting"):
        page = html_page(gather_report(model, other, measured, passes=passes)).encode()
    try:
        write_whole(output, lambda stream: stream.write(page))
    except OSError as error:
        raise ArtifactError(
            f"cannot write the report: {reason_of(error)}; choose a path that can be written",
            location=str(output),
        ) from error
