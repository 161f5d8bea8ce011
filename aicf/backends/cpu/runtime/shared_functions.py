"""C functions of shared libraries that native code calls: how it names them, and where they are in this process."""

from __future__ import annotations

from aicf.backends.common.user_code import library_digest, shared_function
from aicf.errors import ArtifactError, BackendUnavailable

SHARED = "shared "
"""What the name of such a function begins with."""


def table_name(library: str, symbol: str) -> str:
    """How native code names the function: with the digest of the file that has it. Raises BackendUnavailable if this
    machine has none."""
    return f"{SHARED}{library_digest(library, symbol)} {symbol} {library}"


def shared_address(name: str) -> int:
    """The address of a function named by `table_name`.

    Raises:
        BackendUnavailable: this machine has no such library or function, or another version of it.
        ArtifactError: it is no such name.
    """
    _, *parts = name.split(" ", 3)
    if len(parts) != 3:
        raise ArtifactError(f"native code asks for an unknown function '{name}': compile the program again")
    digest, symbol, library = parts
    address = shared_function(library, symbol)
    if (found := library_digest(library, symbol)) != digest:
        raise BackendUnavailable(
            f"the program calls {symbol} of '{library}' with SHA-256 {digest[:12]}, here is {found[:12]}: install that "
            "version, or compile the program again on this machine"
        )
    return address
