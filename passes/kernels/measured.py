"""What a tuning table says about the kernels of one piece of work: the variants that were measured, as records.

It checks that a table holds for the target. Which variant runs is decided in `select-kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.workload import Workload
from aicf.backends.registry import get_kernels
from aicf.dialects.emit_types import KernelAttr, TargetAttr
from aicf.dialects.json_values import attribute_of, json_value
from aicf.errors import PolicyError
from aicf.passes.emit.records import kernel_record
from aicf.passes.kernels.workload_key import key_of
from aicf.policies.tuning_table import (
    Header,
    MeasuredWorkload,
    Row,
    TuningTable,
    check_header,
    remeasure,
    resolve_tuning,
)

Offer = tuple[dict[str, object], Mapping[str, Attribute]]
"""What tells a variant from the others, and its record."""


@dataclass(frozen=True)
class Variant:
    """One way to run a piece of work: a kernel with its record, and what was measured, None if nothing was."""

    kernel: AnyKernel
    record: KernelAttr
    row: Row | None

    @property
    def label(self) -> str:
        """How the ledger calls it: the kernel, and its variant if that was measured."""
        return self.kernel.id if self.row is None else self.row.label


@dataclass(frozen=True)
class Measurements:
    """A tuning table that holds for a target, or none."""

    table: TuningTable | None
    target: TargetAttr
    offers: dict[tuple[str, str], Sequence[Offer]] = field(
        default_factory=dict[tuple[str, str], Sequence[Offer]]
    )
    """What kernels offer for a work, by kernel and key."""

    @staticmethod
    def read(tuning: str, target: TargetAttr) -> Measurements:
        """Reads the option `tuning`: a path, inline JSON, or empty for no table.

        Raises:
            PolicyError: it is no table, was measured for another target, or with other kernels than there are.
        """
        if not tuning:
            return Measurements(None, target)
        table = resolve_tuning(tuning)
        check_header(
            table.header,
            target.backend.data,
            target.arch.data,
            target.threads,
            libraries_of(target),
        )
        kernels = get_kernels(target.backend.data)
        for measured in table.works:
            for row in measured.rows:
                _check_row(row, kernels, table.header)
        return Measurements(table, target)

    def find(self, work: Workload) -> MeasuredWorkload | None:
        """What was measured of the work, None if nothing was."""
        return None if self.table is None else self.table.find(key_of(work))

    def variants(
        self,
        kernel: AnyKernel,
        work: Workload,
        measured: MeasuredWorkload | None,
        proposed: Mapping[str, Attribute] = MappingProxyType({}),
    ) -> tuple[list[Variant], dict[str, str]]:
        """The measured variants of a legal kernel, else the one it would take itself; and why others are none.

        Args:
            measured: What was found of the work.
            proposed: What the device proposes for the `device_fields` of the kernel, if it was queried.
        """
        own = [] if measured is None else [row for row in measured.rows if row.kernel == kernel.id]
        failed = [] if measured is None else [entry for entry in measured.failed if entry.kernel == kernel.id]
        reasons = {entry.label: f"failed when it was measured: {entry.reason}" for entry in failed}
        if not own:
            # What the kernel would take itself may be what failed.
            return [] if failed else [self._unmeasured(kernel, work, proposed)], reasons
        if kernel.device_fields:
            entries = kernel.record(work, self.target)
            records = [kernel_record(kernel, _completed(entries, row)) for row in own]
            return [Variant(kernel, *pair) for pair in zip(records, own, strict=True)], reasons
        offered = self._offered(kernel, work)
        found: list[Variant] = []
        for row in own:
            record = next((entries for spec, entries in offered if spec == row.spec), None)
            if record is None:
                reasons[row.label] = (
                    "measured, but the kernel does not offer this variant: run aicf tune again"
                )
            else:
                found.append(Variant(kernel, kernel_record(kernel, record), row))
        if not found and work.batch_invariant:
            return [self._unmeasured(kernel, work)], reasons  # what was measured may all be of other orders
        return found, reasons

    def stating(
        self,
        entries: Mapping[str, object],
        kernel: AnyKernel,
        work: Workload,
        measured: MeasuredWorkload | None,
        proposed: Mapping[str, Attribute] = MappingProxyType({}),
    ) -> tuple[list[Variant], dict[str, str]]:
        """The variants whose record has `entries`: of those that `variants` gives, else of all that a kernel offers."""
        variants, reasons = self.variants(kernel, work, measured, proposed)
        if not kernel.device_fields:
            variants += [
                Variant(kernel, kernel_record(kernel, each), None)
                for each in kernel.variants(work, self.target)
            ]
        elif set(kernel.device_fields) <= set(entries):
            given = {name: attribute_of(entries[name]) for name in kernel.device_fields}
            own = kernel.record(work, self.target)
            variants.append(Variant(kernel, kernel_record(kernel, {**own, **given}), None))
        return [v for v in variants if _has(v.record.record.data, entries)][:1], reasons

    def why_none_states(
        self, path: str, entries: Mapping[str, object], kernel: AnyKernel, work: Workload
    ) -> str:
        """What keeps every record of a kernel from having `entries`: the first that none has, and what they have."""
        left = [kernel_record(kernel, each).record.data for each in kernel.variants(work, self.target)]
        for name, wanted in entries.items():
            fitting = [each for each in left if _has(each, {name: wanted})]
            if not fitting:
                values = dict.fromkeys(str(json_value(each[name])) for each in left if name in each)
                offered = f"it offers {', '.join(values)}" if values else "it records nothing of that name"
                return f"{path}.{name}: '{kernel.id}' does not offer {wanted}; {offered}"
            left = fitting
        return f"{path}: '{kernel.id}' is legal only where it was measured; give the tuning table"

    def _unmeasured(
        self, kernel: AnyKernel, work: Workload, proposed: Mapping[str, Attribute] = MappingProxyType({})
    ) -> Variant:
        record = {**kernel.record(work, self.target), **proposed}
        return Variant(kernel, kernel_record(kernel, record), None)

    def _offered(self, kernel: AnyKernel, work: Workload) -> Sequence[Offer]:
        """Every variant of a kernel, worked out once for works that are alike."""
        key = (kernel.id, key_of(work).digest)
        if key not in self.offers:
            records = kernel.variants(work, self.target)
            self.offers[key] = list(zip(specs_of(records), records, strict=True))
        return self.offers[key]


def _has(record: Mapping[str, Attribute], entries: Mapping[str, object]) -> bool:
    """Whether a record has all entries with these values."""
    return all(name in record and json_value(record[name]) == value for name, value in entries.items())


def _completed(entries: Mapping[str, Attribute], row: Row) -> dict[str, Attribute]:
    return {**entries, **{name: attribute_of(value) for name, value in row.record.items()}}


def libraries_of(target: TargetAttr) -> dict[str, str]:
    """Versions of the libraries that a target lists."""
    listed = target.facts.data.get("libraries")
    if not isinstance(listed, DictionaryAttr):
        return {}
    return {name: value.data for name, value in listed.data.items() if isinstance(value, StringAttr)}


_CONSEQUENCES = ("grid", "block", "cluster", "shared_bytes", "workspace_bytes", "combination_order")
"""Entries that follow from others, which tell more."""


def specs_of(records: Sequence[Mapping[str, Attribute]]) -> list[dict[str, object]]:
    """Of each record the entries that tell it from the others, as plain values: as few as do, the first ones, those
    that were decided before those that follow from them."""
    telling: list[str] = []
    classes = [0] * len(records)  # records of one class are not told apart yet
    told = 1
    for name in sorted(records[0], key=_CONSEQUENCES.__contains__):
        numbers: dict[tuple[int, Attribute | None], int] = {}
        keys = ((index, record.get(name)) for index, record in zip(classes, records, strict=True))
        finer = [numbers.setdefault(key, len(numbers)) for key in keys]
        if len(numbers) > told:
            telling.append(name)
            classes, told = finer, len(numbers)
    return [{name: json_value(record[name]) for name in telling if name in record} for record in records]


def _check_row(row: Row, kernels: Mapping[str, AnyKernel], header: Header) -> None:
    kernel = kernels.get(row.kernel)
    if kernel is None:
        raise PolicyError(
            f"tuning: backend '{header.backend}' has no kernel '{row.kernel}', which the table has measured; "
            f"{remeasure(header)}"
        )
    if kernel.version != row.version:
        raise PolicyError(
            f"tuning: '{row.kernel}' is version {kernel.version} here, the table has measured version "
            f"{row.version}; {remeasure(header)}"
        )
    fields = list(kernel.device_fields)
    if set(fields) != set(row.record):
        raise PolicyError(
            f"tuning: a row of '{row.kernel}' records {', '.join(row.record) or 'nothing'} of the device, the kernel "
            f"needs {', '.join(fields) or 'nothing'}; {remeasure(header)}"
        )
