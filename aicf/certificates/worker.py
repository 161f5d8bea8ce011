"""A process of `verify`.

    python -m aicf.certificates.worker REQUEST.json      a `Request`, by `verifying`

It prints JSON, a line each: the runs so far, and at the end a `Series` or an error.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from aicf.certificates.repeating import Request, repeat
from aicf.errors import AicfError
from aicf.support.dataclass_json import from_json_value, to_json_value

_REPORT_S = 0.2
"""Seconds between two reports of how far it is."""


def main(path: str) -> int:
    """Repeats what the request in a file asks for; the exit status."""
    request = from_json_value(Request, json.loads(Path(path).read_text("utf-8")), "request")
    last = time.monotonic()

    def report(runs: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _REPORT_S:
            last = time.monotonic()
            print(json.dumps({"runs": runs}), flush=True)

    try:
        series = repeat(request, report)
    except AicfError as error:
        told = {"error": type(error).__name__, "message": error.message, "location": error.location}
        print(json.dumps(told), flush=True)
        return 1
    print(json.dumps({"series": to_json_value(series)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
