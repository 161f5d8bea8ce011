"""The different byte sets that accesses to one bind or slot have, and which of them share a byte.

Instructions touch a buffer through few views: what is asked for each pair of views would be asked again and again for
each pair of accesses.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicf.passes.analysis.strided import StridedBytes


class Footprints:
    """Byte sets of one bind or slot, compared once each."""

    def __init__(self) -> None:
        self._meeting: dict[StridedBytes, list[StridedBytes]] = {}

    def meeting(self, touched: StridedBytes) -> Sequence[StridedBytes]:
        """Those asked about so far that may share a byte with `touched`, itself included unless it is empty."""
        found = self._meeting.get(touched)
        if found is None:
            found = [other for other in self._meeting if touched.meets(other)]
            for other in found:
                self._meeting[other].append(touched)
            if touched.run:
                found.append(touched)
            self._meeting[touched] = found
        return found
