# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""What came with Hopper: programmatic launches, clusters, barriers of copies, bulk copies, warpgroup products."""

from __future__ import annotations

import itertools

from aicf.backends.cuda.compiler.ptx.intrinsics import PTX_BYTES, Intrinsic, value_asm, void_asm

# Programmatic dependent launch

wait_for_predecessors = void_asm("griddepcontrol.wait;", [])
launch_dependents = void_asm("griddepcontrol.launch_dependents;", [])

# Clusters

cluster_rank = value_asm("mov.u32 $0, %cluster_ctarank;", ["u32"], [], effect=False)
cluster_arrive = void_asm("barrier.cluster.arrive.release.aligned;", [])
cluster_arrive_relaxed = void_asm("barrier.cluster.arrive.relaxed.aligned;", [])
"""Without waiting for what was stored before: who meets has begun, and no more."""
cluster_wait = void_asm("barrier.cluster.wait.acquire.aligned;", [])
map_shared = value_asm("mapa.shared::cluster.u32 $0, $1, $2;", ["u32"], ["u32", "u32"], effect=False)
"""`map_shared(address, rank)`: the same address in the shared memory of another block of the cluster."""

# Barriers of threads and of copies

barrier_init = void_asm("mbarrier.init.shared::cta.b64 [$0], $1;", ["u32", "u32"])
barrier_expect = void_asm("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", ["u32", "u32"])
barrier_arrive = void_asm("mbarrier.arrive.shared::cta.b64 _, [$0];", ["u32"])
barrier_wait = void_asm(
    "{ .reg .pred p; L_w_${:uid}: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
    "@p bra.uni L_d_${:uid}; bra.uni L_w_${:uid}; L_d_${:uid}: }",
    ["u32", "u32"],
)
fence_barrier_init = void_asm("fence.mbarrier_init.release.cluster;", [])
fence_async_proxy = void_asm("fence.proxy.async.shared::cta;", [])
barrier_arrive_cluster = void_asm("mbarrier.arrive.shared::cluster.b64 _, [$0];", ["u32"])
"""`barrier_arrive_cluster(map_shared(barrier, rank))`: arrives at the barrier of another block."""


def _store_async(kind: str, register: str) -> Intrinsic:
    text = f"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.{kind} [$0], $1, [$2];"
    return void_asm(text, ["u32", register, "u32"])


store_async_f32 = _store_async("f32", "f32")
store_async_f64 = _store_async("f64", "f64")
store_async_i32 = _store_async("b32", "i32")
store_async_i64 = _store_async("b64", "i64")
"""`store_async(address, value, barrier)`: tells a block of the cluster a number; both addresses by `map_shared`. The
barrier counts its bytes."""
named_barrier = void_asm("bar.sync $0, $1;", ["u32", "u32"])
"""`named_barrier(number 1..15, threads)`: a barrier of part of a block."""
named_arrive = void_asm("bar.arrive $0, $1;", ["u32", "u32"])
"""`named_arrive(number, threads)`: as `named_barrier`, for threads that do not wait."""


# Bulk tensor copies


def _copy_tensor(rank: int, multicast: bool) -> Intrinsic:
    coordinates = ",".join(f"${3 + i}" for i in range(rank))
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        + (".multicast::cluster" if multicast else "")
        + f" [$0], [$1, {{{coordinates}}}], [$2]"
        + (f", ${3 + rank};" if multicast else ";")
    )
    return void_asm(text, ["u32", "u64", "u32", *["i32"] * rank, *(["u16"] if multicast else [])])


for _rank in (2, 3, 4, 5):
    # copy_tensor_RANKd(shared, map, barrier, innermost index, ...); `_multicast` takes last the mask of cluster ranks
    # that get the copy, each at the same place and with its own barrier
    globals()[f"copy_tensor_{_rank}d"] = _copy_tensor(_rank, False)
    globals()[f"copy_tensor_{_rank}d_multicast"] = _copy_tensor(_rank, True)


def _copy_windows(rank: int, multicast: bool) -> Intrinsic:
    dims = rank - 2
    coordinates = ",".join(f"${3 + i}" for i in range(rank))
    elements = ",".join(f"${3 + rank + i}" for i in range(dims))
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        + (".multicast::cluster" if multicast else "")
        + f" [$0], [$1, {{{coordinates}}}], [$2], {{{elements}}}"
        + (f", ${3 + rank + dims};" if multicast else ";")
    )
    kinds = ["u32", "u64", "u32", *["i32"] * rank, *["u16"] * dims, *(["u16"] if multicast else [])]
    return void_asm(text, kinds)


for _rank in (3, 4, 5):
    # copy_windows_RANKd(shared, map, barrier, channel, first element of the first window along each dim, image, which
    # element of the windows along each dim); dims innermost first
    globals()[f"copy_windows_{_rank}d"] = _copy_windows(_rank, False)
    globals()[f"copy_windows_{_rank}d_multicast"] = _copy_windows(_rank, True)

# Registers

for _count in (24, 40):
    globals()[f"fewer_registers_{_count}"] = void_asm(f"setmaxnreg.dec.sync.aligned.u32 {_count};", [])
for _count in (160, 216, 232, 240):
    globals()[f"more_registers_{_count}"] = void_asm(f"setmaxnreg.inc.sync.aligned.u32 {_count};", [])

# Warpgroup products

wgmma_fence = void_asm("wgmma.fence.sync.aligned;", [])
wgmma_commit = void_asm("wgmma.commit_group.sync.aligned;", [])
wgmma_wait_1 = void_asm("wgmma.wait_group.sync.aligned 1;", [])


def _wgmma(n: int, dtype: str, a_from_rows: int, b_from_rows: int) -> Intrinsic:
    """Both operands in shared memory, along K (0), or along M or N (1)."""
    count = n // 2
    registers = ",".join(f"${i}" for i in range(count))
    a, b, scale = 2 * count, 2 * count + 1, 2 * count + 2
    # Only halves may lie along M or N: TF32 has no place to say it.
    depth, lies = (8, "") if dtype == "tf32" else (16, f", {a_from_rows}, {b_from_rows}")
    text = (
        f"{{ .reg .pred p; setp.ne.b32 p, ${scale}, 0; "
        f"wgmma.mma_async.sync.aligned.m64n{n}k{depth}.f32.{dtype}.{dtype} {{{registers}}}, ${a}, ${b}, p, 1, 1"
        f"{lies}; }}"
    )
    return value_asm(text, ["f32"] * count, [("f32", count), "u64", "u64", "i32"], tied=0)


for _n in (64, 128, 192, 256):
    for _dtype in ("f16", "bf16"):
        # wgmma_N_DTYPE(accumulator, descriptor_a, descriptor_b, keep); keep = 0 starts from zero
        globals()[f"wgmma_{_n}_{_dtype}"] = _wgmma(_n, _dtype, 0, 0)
        for _a, _b in ((0, 1), (1, 0), (1, 1)):
            # wgmma_N_DTYPE_AB: A is 1 where it lies as [K, M], B is 1 where it lies as [K, N]
            globals()[f"wgmma_{_n}_{_dtype}_{_a}{_b}"] = _wgmma(_n, _dtype, _a, _b)
    globals()[f"wgmma_{_n}_tf32"] = _wgmma(_n, "tf32", 0, 0)
    # wgmma_result_N(accumulator): the sums once every product is done; nothing reads them before
    globals()[f"wgmma_result_{_n}"] = value_asm(
        "wgmma.wait_group.sync.aligned 0;", ["f32"] * (_n // 2), [("f32", _n // 2)], memory=True, tied=0
    )


def _wgmma_bytes(n: int, a_type: str, b_type: str, sums: str) -> Intrinsic:
    """Operands of 8 bits, both along K in shared memory."""
    count = n // 2
    registers = ",".join(f"${i}" for i in range(count))
    a, b, scale = 2 * count, 2 * count + 1, 2 * count + 2
    kind, signs = ("s32", "") if sums == "i32" else (sums, ", 1, 1")
    text = (
        f"{{ .reg .pred p; setp.ne.b32 p, ${scale}, 0; "
        f"wgmma.mma_async.sync.aligned.m64n{n}k32.{kind}.{a_type}.{b_type} {{{registers}}}, ${a}, ${b}, p{signs}; }}"
    )
    return value_asm(text, [sums] * count, [(sums, count), "u64", "u64", "i32"], tied=0)


for _n in (64, 128, 192, 256):
    for _sums, _types in PTX_BYTES.items():
        for (_a, _a_type), (_b, _b_type) in itertools.product(_types.items(), repeat=2):
            # wgmma_N_A_B(accumulator, descriptor_a, descriptor_b, keep), of operands of 8 bits
            globals()[f"wgmma_{_n}_{_a}_{_b}"] = _wgmma_bytes(_n, _a_type, _b_type, _sums)
    globals()[f"wgmma_result_{_n}_i32"] = value_asm(
        "wgmma.wait_group.sync.aligned 0;", ["i32"] * (_n // 2), [("i32", _n // 2)], memory=True, tied=0
    )


def _wgmma_of_registers(n: int, dtype: str, fence: str) -> Intrinsic:
    """As `_wgmma` with A in registers and B along N in shared memory."""
    count = n // 2
    registers = ",".join(f"${i}" for i in range(count))
    a = ",".join(f"${2 * count + i}" for i in range(4))
    text = (
        f"{fence}wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} "
        f"{{{registers}}}, {{{a}}}, ${2 * count + 4}, 1, 1, 1, 1;"
    )
    return value_asm(text, ["f32"] * count, [("f32", count), *["u32"] * 4, "u64"], tied=0)


for _n in (64, 128):
    # wgmma_start_N(accumulator): before products that use it; what was to be written to it is written
    globals()[f"wgmma_start_{_n}"] = value_asm(
        "wgmma.fence.sync.aligned;", ["f32"] * (_n // 2), [("f32", _n // 2)], memory=True, tied=0
    )
    # wgmma_older_N(accumulator): the sums once every product is done but those of the last group
    globals()[f"wgmma_older_{_n}"] = value_asm(
        "wgmma.wait_group.sync.aligned 1;", ["f32"] * (_n // 2), [("f32", _n // 2)], memory=True, tied=0
    )
    # wgmma_ready_N(weights): N columns of left operands in registers; what was to be written to them is written
    globals()[f"wgmma_ready_{_n}"] = value_asm(
        "wgmma.fence.sync.aligned;", ["u32"] * (_n // 4), [("u32", _n // 4)], memory=True, tied=0
    )
    for _dtype in ("f16", "bf16"):
        # wgmma_of_registers_N_DTYPE(accumulator, a0, a1, a2, a3, descriptor_b): adds to the accumulator, and waits
        # until its registers are written; wgmma_of_ready_N_DTYPE is for those that `wgmma_start` and `wgmma_ready` gave
        globals()[f"wgmma_of_registers_{_n}_{_dtype}"] = _wgmma_of_registers(
            _n, _dtype, "wgmma.fence.sync.aligned; "
        )
        globals()[f"wgmma_of_ready_{_n}_{_dtype}"] = _wgmma_of_registers(_n, _dtype, "")
