"""How the threads of a team wait for a run and start it, as machine code: waking them takes no lock of the interpreter.

A team shares one block of memory. A run writes what to call, counts the runs up by one and wakes those who sleep; a
member that sees the new number makes its call and counts itself as done. Whoever waits for a run looks at the number
for some microseconds, as the next run often comes at once, and sleeps after that.
"""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from functools import cache
from typing import Any

from aicf.backends.machine_code import MachineCode, assemble

_SPINS = 2048
"""How often a member looks for the next run before it sleeps: some 20 to 100 us."""
_SPINS_BEFORE_YIELD = 128
"""How often whoever waits looks before it gives up the processor for a moment: what it waits for may need that one."""

WHOLE_PROGRAM = -2
"""In place of the number of an instruction: the function is `void run(i64 tid, i64 nthreads, void** table)`."""

_ALIGN = 128
"""Bytes: two cache lines, as processors fetch pairs. What different threads write lies in different ones."""
_LINES = ("runs", "done", "sleepers", "call", "mutex", "wake", "turn", "functions")
_OFFSETS = {name: number * _ALIGN for number, name in enumerate(_LINES)}
BLOCK_BYTES = len(_LINES) * _ALIGN
_CALL = ("function", "launch", "table", "members", "stopped")
_FUNCTIONS = (
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_cond_wait",
    "pthread_cond_broadcast",
    "sched_yield",
)

_X86_PAUSE, _ARM_PAUSE = "call void @llvm.x86.sse2.pause()", "call void @llvm.aarch64.hint(i32 1)"
_PAUSES = {"x86_64": _X86_PAUSE, "amd64": _X86_PAUSE, "aarch64": _ARM_PAUSE, "arm64": _ARM_PAUSE}
"""By machine: says that a loop waits, so that it takes less from the other thread of a core."""

_CODE = """
declare void @llvm.x86.sse2.pause()
declare void @llvm.aarch64.hint(i32)

define internal ptr @function(ptr %team, i64 %number) {{
  %functions = getelementptr i8, ptr %team, i64 {functions}
  %place = getelementptr ptr, ptr %functions, i64 %number
  %function = load ptr, ptr %place
  ret ptr %function
}}

define internal void @lock(ptr %team, ptr %mutex) {{
  %function = call ptr @function(ptr %team, i64 0)
  call i32 %function(ptr %mutex)
  ret void
}}

define internal void @unlock(ptr %team, ptr %mutex) {{
  %function = call ptr @function(ptr %team, i64 1)
  call i32 %function(ptr %mutex)
  ret void
}}

; Makes the call of one thread.
define internal void @enter(ptr %team, i64 %tid) {{
  %call = getelementptr i8, ptr %team, i64 {call}
  %function = load ptr, ptr %call
  %launch.at = getelementptr i64, ptr %call, i64 1
  %launch = load i64, ptr %launch.at
  %table.at = getelementptr i64, ptr %call, i64 2
  %table = load ptr, ptr %table.at
  %members.at = getelementptr i64, ptr %call, i64 3
  %members = load i64, ptr %members.at
  %is.whole = icmp eq i64 %launch, {whole}
  br i1 %is.whole, label %whole, label %one
whole:
  call void %function(i64 %tid, i64 %members, ptr %table)
  ret void
one:
  call void %function(i64 %launch, i64 %tid, i64 %members, ptr %table)
  ret void
}}

; Counts the runs up, and wakes those who sleep. One of the two sees what the other one wrote: a member counts itself as
; asleep before it looks at the number for the last time, and this changes the number before it looks for sleepers.
define internal void @wake(ptr %team) {{
  %runs = getelementptr i8, ptr %team, i64 {runs}
  %before = atomicrmw add ptr %runs, i64 1 seq_cst
  %sleepers.at = getelementptr i8, ptr %team, i64 {sleepers}
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %any = icmp ne i64 %sleepers, 0
  br i1 %any, label %asleep, label %awake
asleep:
  %mutex = getelementptr i8, ptr %team, i64 {mutex}
  %condition = getelementptr i8, ptr %team, i64 {wake}
  call void @lock(ptr %team, ptr %mutex)
  %broadcast = call ptr @function(ptr %team, i64 3)
  call i32 %broadcast(ptr %condition)
  call void @unlock(ptr %team, ptr %mutex)
  br label %awake
awake:
  ret void
}}

; What a member does until the team ends: i64 tid is 1 or more.
define void @serve(ptr %team, i64 %tid) {{
entry:
  %runs = getelementptr i8, ptr %team, i64 {runs}
  %done = getelementptr i8, ptr %team, i64 {done}
  %sleepers = getelementptr i8, ptr %team, i64 {sleepers}
  %mutex = getelementptr i8, ptr %team, i64 {mutex}
  %condition = getelementptr i8, ptr %team, i64 {wake}
  %call = getelementptr i8, ptr %team, i64 {call}
  %stopped.at = getelementptr i64, ptr %call, i64 4
  br label %next
next:
  %seen = phi i64 [ 0, %entry ], [ %number, %work ]
  br label %look
look:
  %spins = phi i64 [ 0, %next ], [ %more, %pause ], [ %more, %yield ]
  %number.awake = load atomic i64, ptr %runs seq_cst, align 8
  %is.new = icmp ne i64 %number.awake, %seen
  br i1 %is.new, label %begin, label %pause
pause:
  {pause}
  %more = add i64 %spins, 1
  %rest = urem i64 %more, {spins_before_yield}
  %is.long = icmp eq i64 %rest, 0
  br i1 %is.long, label %yield, label %look
yield:
  %give.way = call ptr @function(ptr %team, i64 4)
  call i32 %give.way()
  %patient = icmp slt i64 %more, {spins}
  br i1 %patient, label %look, label %sleep
sleep:
  call void @lock(ptr %team, ptr %mutex)
  %others = atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %check
check:
  %number.woken = load atomic i64, ptr %runs seq_cst, align 8
  %is.woken = icmp ne i64 %number.woken, %seen
  br i1 %is.woken, label %rise, label %wait
wait:
  %cond.wait = call ptr @function(ptr %team, i64 2)
  call i32 %cond.wait(ptr %condition, ptr %mutex)
  br label %check
rise:
  %up = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  call void @unlock(ptr %team, ptr %mutex)
  br label %begin
begin:
  %number = phi i64 [ %number.awake, %look ], [ %number.woken, %rise ]
  %stopped = load i64, ptr %stopped.at
  %is.over = icmp ne i64 %stopped, 0
  br i1 %is.over, label %over, label %work
work:
  call void @enter(ptr %team, i64 %tid)
  %arrived = atomicrmw add ptr %done, i64 1 seq_cst
  br label %next
over:
  ret void
}}

; Makes a call in all threads, the first in this one, and returns when all are over: 0, or 1 if there is no such team.
define i32 @run(ptr %team, ptr %function, i64 %launch, ptr %table) {{
entry:
  %is.none = icmp eq ptr %team, null
  br i1 %is.none, label %none, label %queue
none:
  ret i32 1
queue:
  %turn = getelementptr i8, ptr %team, i64 {turn}
  call void @lock(ptr %team, ptr %turn)
  %call = getelementptr i8, ptr %team, i64 {call}
  %stopped.at = getelementptr i64, ptr %call, i64 4
  %stopped = load i64, ptr %stopped.at
  %is.over = icmp ne i64 %stopped, 0
  br i1 %is.over, label %over, label %begin
over:
  call void @unlock(ptr %team, ptr %turn)
  ret i32 1
begin:
  store ptr %function, ptr %call
  %launch.at = getelementptr i64, ptr %call, i64 1
  store i64 %launch, ptr %launch.at
  %table.at = getelementptr i64, ptr %call, i64 2
  store ptr %table, ptr %table.at
  %members.at = getelementptr i64, ptr %call, i64 3
  %members = load i64, ptr %members.at
  %others = sub i64 %members, 1
  %done = getelementptr i8, ptr %team, i64 {done}
  store atomic i64 0, ptr %done seq_cst, align 8
  call void @wake(ptr %team)
  call void @enter(ptr %team, i64 0)
  br label %look
look:
  %spins = phi i64 [ 0, %begin ], [ %more, %pause ], [ 0, %yield ]
  %arrived = load atomic i64, ptr %done seq_cst, align 8
  %is.done = icmp eq i64 %arrived, %others
  br i1 %is.done, label %end, label %pause
pause:
  {pause}
  %more = add i64 %spins, 1
  %patient = icmp slt i64 %more, {spins_before_yield}
  br i1 %patient, label %look, label %yield
yield:
  %give.way = call ptr @function(ptr %team, i64 4)
  call i32 %give.way()
  br label %look
end:
  call void @unlock(ptr %team, ptr %turn)
  ret i32 0
}}

; Ends the team once nothing runs: its members return, and later runs find it over.
define void @stop(ptr %team) {{
  %turn = getelementptr i8, ptr %team, i64 {turn}
  call void @lock(ptr %team, ptr %turn)
  %call = getelementptr i8, ptr %team, i64 {call}
  %stopped.at = getelementptr i64, ptr %call, i64 4
  store i64 1, ptr %stopped.at
  call void @wake(ptr %team)
  call void @unlock(ptr %team, ptr %turn)
  ret void
}}
"""


@dataclass(frozen=True)
class TeamCode:
    """The functions of the code above. They run without the interpreter lock."""

    code: MachineCode
    serve: Any
    run: Any
    stop: Any


@cache
def team_code() -> TeamCode:
    """The code, made once a process. Raises RuntimeError if LLVM does not know this machine."""
    code = assemble(
        _CODE.format(
            **_OFFSETS,
            whole=WHOLE_PROGRAM,
            spins=_SPINS,
            spins_before_yield=_SPINS_BEFORE_YIELD,
            pause=_PAUSES.get(platform.machine().lower(), ""),
        )
    )
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    return TeamCode(
        code,
        ctypes.CFUNCTYPE(None, pointer, integer)(code.address("serve")),
        ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, integer, pointer)(code.address("run")),
        ctypes.CFUNCTYPE(None, pointer)(code.address("stop")),
    )


def new_block(size: int) -> ctypes.Array[ctypes.c_char]:
    """The memory of a new team of `size` threads. It has to live as long as any of them."""
    room = bytearray(BLOCK_BYTES + _ALIGN)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % _ALIGN
    block = (ctypes.c_char * BLOCK_BYTES).from_buffer(room, start)
    library = ctypes.CDLL(None)
    for kind, name in (("mutex", "mutex"), ("mutex", "turn"), ("cond", "wake")):
        library[f"pthread_{kind}_init"](ctypes.byref(block, _OFFSETS[name]), None)
    functions = (ctypes.c_void_p * len(_FUNCTIONS)).from_buffer(block, _OFFSETS["functions"])
    for number, name in enumerate(_FUNCTIONS):
        functions[number] = ctypes.cast(library[name], ctypes.c_void_p).value
    call = (ctypes.c_int64 * len(_CALL)).from_buffer(block, _OFFSETS["call"])
    call[_CALL.index("members")] = size
    return block


def sleepers(block: ctypes.Array[ctypes.c_char]) -> int:
    """How many members of a team are asleep: they take no time of a processor."""
    return ctypes.c_int64.from_buffer(block, _OFFSETS["sleepers"]).value
