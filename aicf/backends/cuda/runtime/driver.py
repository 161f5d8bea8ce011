"""The CUDA driver as the loader uses it: few calls, plain integers for handles, errors as one line.

`Driver` is the protocol, so that tests run everything above it on a recorder without a GPU; `CudaDriver` is the real
one, on `cuda.bindings`. Nothing here knows programs, plans or kernels, and nothing is decided here. Importing this
module imports no CUDA package: they are optional, and asked for when a device is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from aicf.backends.cuda.runtime.device_program import TensorMap
from aicf.backends.cuda.runtime.tensor_maps import encoded
from aicf.backends.cuda.target import ARCHES, runs_on
from aicf.errors import AicfError, BackendUnavailable
from aicf.support.extras import install

OUT_OF_MEMORY = 2
_NOT_READY = 600
"""Of an event that the device has not reached yet."""
STICKY = frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})
"""Errors that break the context of the process: illegal and misaligned addresses, illegal instructions, asserts,
launch failures, uncorrectable memory. Every later call on this GPU fails with the same one."""

Triple = tuple[int, int, int]


LOST = "; a kernel broke the GPU context of this process, so every later use of the GPU fails: start a new process"
"""What a sticky error means, and the way out."""


class DriverError(AicfError):
    """A call of the driver failed; `failure` is that alone, without what it means.

    Args:
        call: Its name.
        code: The driver's number.
        reason: Its name and description.
    """

    def __init__(self, call: str, code: int, reason: str) -> None:
        self.code = code
        self.is_sticky = code in STICKY
        self.failure = f"{call} failed: {reason}"
        hint = "; GraphExec.check(), or aicf run, on the same inputs there names the instruction"
        super().__init__(f"{self.failure}{LOST + hint if self.is_sticky else ''}")


@dataclass(frozen=True)
class DeviceFacts:
    """One GPU: what it is called, compute capability times ten, bytes of memory, and the CUDA version of the driver
    (13000 is 13.0)."""

    name: str
    capability: int
    memory_bytes: int
    multiprocessors: int
    driver: int

    @property
    def arch(self) -> str:
        """The architecture whose code it runs best, empty if it runs none of those we know."""
        fitting = [arch for arch in ARCHES.values() if runs_on(arch.name, self.capability)]
        return max(fitting, key=lambda arch: (arch.capability, arch.is_exact)).name if fitting else ""


_NUMBERS: Mapping[str, Any] = {
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}


class Arguments:
    """The parameters of one launch in C: an array of pointers to values. Its memory stays where it is.

    Args:
        types: Of each: `ptr`, `i32`, `i64`, `f32` or `f64`.
        values: The addresses and numbers.
    """

    def __init__(self, types: Sequence[str], values: Sequence[int | float]) -> None:
        self._cells = [
            _NUMBERS.get(kind, ctypes.c_uint64)(value) for kind, value in zip(types, values, strict=True)
        ]
        self._pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(c) for c in self._cells])

    @property
    def address(self) -> int:
        """Where the array of pointers lies."""
        return ctypes.addressof(self._pointers)

    def __setitem__(self, index: int, value: int) -> None:
        self._cells[index].value = value

    def __getitem__(self, index: int) -> int | float:
        return self._cells[index].value

    def __len__(self) -> int:
        return len(self._cells)


@dataclass(frozen=True)
class KernelParams:
    """One launch: the function, sizes in blocks and threads, dynamic shared memory, and parameters."""

    function: int
    grid: Triple
    block: Triple
    cluster: Triple
    shared_bytes: int
    arguments: Arguments


@dataclass(frozen=True)
class GraphEdge:
    """A dependency of a graph node that is being added: on `node`, early if `programmatic`."""

    node: int
    programmatic: bool = False


class Driver(Protocol):
    """What the loader needs of CUDA. All but `facts`, `count` and `retain` work in the context made current last in the
    calling thread. Raises DriverError, or BackendUnavailable when memory is short."""

    # Devices

    def count(self) -> int:
        """Number of GPUs. Raises BackendUnavailable if there is no driver."""
        ...

    def facts(self, device: int) -> DeviceFacts:
        """What GPU number `device` is."""
        ...

    def retain(self, device: int) -> int:
        """The primary context of a GPU, which other libraries in the process share."""
        ...

    def release(self, device: int) -> None:
        """Gives the primary context back."""
        ...

    def make_current(self, context: int) -> None:
        """Makes a context that of the calling thread."""
        ...

    # Memory

    def allocate(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def allocate_pinned(self, nbytes: int) -> int: ...
    def free_pinned(self, address: int) -> None: ...
    def available(self) -> tuple[int, int]: ...
    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None: ...
    def download(self, target: int, source: int, nbytes: int, stream: int) -> None: ...
    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None: ...
    def clear(self, target: int, nbytes: int, stream: int) -> None: ...

    # Streams and events

    def open_stream(self, priority: int = 0) -> int:
        """A new stream; a lower number is served first, and numbers beyond the device's range are its limits."""
        ...

    def close_stream(self, stream: int) -> None: ...
    def synchronize(self, stream: int) -> None: ...
    def synchronize_all(self) -> None:
        """Waits for everything on the device that this process has queued."""
        ...

    def is_capturing(self, stream: int) -> bool: ...
    def exchange_capture_mode(self, mode: int) -> int:
        """Sets what this thread may call while a stream is captured, and gives what it might before."""
        ...

    def open_event(self) -> int: ...
    def close_event(self, event: int) -> None: ...
    def record(self, event: int, stream: int) -> None: ...
    def wait(self, stream: int, event: int) -> None: ...
    def is_over(self, event: int) -> bool: ...
    def wait_for(self, event: int) -> None:
        """Lets the calling thread wait for an event."""
        ...

    def milliseconds(self, start: int, end: int) -> float: ...

    # Code

    def load(self, image: bytes) -> int: ...
    def unload(self, module: int) -> None: ...
    def function(self, module: int, symbol: str) -> int: ...
    def allow_shared(self, function: int, nbytes: int) -> None: ...
    def encode(self, tensor: TensorMap, address: int) -> bytes:
        """The 128 bytes of a TMA descriptor for a tensor at `address`."""
        ...

    def run(self, kernel: KernelParams, stream: int) -> None:
        """Launches a kernel by itself."""
        ...

    # Graphs

    def new_graph(self) -> int: ...
    def add_kernel(self, graph: int, kernel: KernelParams, after: Sequence[GraphEdge]) -> int: ...
    def add_event(self, graph: int, event: int, after: Sequence[int]) -> int: ...
    def capture(
        self, graph: int, stream: int, after: Sequence[int], work: Callable[[], None]
    ) -> tuple[int, ...]:
        """Captures what `work` queues on `stream` into `graph`, after nodes `after` by full edges; the nodes at its end
        (`after` itself if it queued nothing)."""
        ...

    def instantiate(self, graph: int, stream: int) -> int:
        """An executable graph, uploaded to the device."""
        ...

    def launcher(self, executable: int, stream: int) -> Callable[[], None]:
        """The call that queues one launch, with nothing left to prepare."""
        ...

    def set_kernel(self, executable: int, node: int, kernel: KernelParams) -> None:
        """Changes the parameters of a kernel node for later launches."""
        ...

    def close_graph(self, graph: int) -> None: ...
    def close_executable(self, executable: int) -> None: ...


RELAXED = 2
"""The capture mode in which a thread may call everything."""


@cache
def open_driver() -> Driver:
    """The driver of this machine. Raises BackendUnavailable if there is none."""
    return CudaDriver()


def host_arch() -> str:
    """The architecture of this machine's first GPU, `sm_90a` on Hopper.

    Raises BackendUnavailable: there is no driver, no GPU, or one that this release makes no code for.
    """
    facts = facts_of(open_driver(), 0)
    if not facts.arch:
        known = ", ".join(ARCHES)
        raise BackendUnavailable(
            f"{facts.name} ({capability_text(facts)}) runs none of {known}; use target cpu"
        )
    return facts.arch


def facts_of(driver: Driver, ordinal: int) -> DeviceFacts:
    """GPU number `ordinal`. Raises BackendUnavailable if there is none."""
    count = driver.count()
    if count == 0:
        raise BackendUnavailable(
            "there is no NVIDIA GPU here (CUDA_VISIBLE_DEVICES may hide it); use target cpu"
        )
    if ordinal >= count:
        known = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise BackendUnavailable(
            f"there is no device cuda:{ordinal}; this machine has {known} (CUDA_VISIBLE_DEVICES may hide others)"
        )
    return driver.facts(ordinal)


def describe_devices() -> Sequence[Mapping[str, str]]:
    """This machine's GPUs, see `Backend.devices`. Raises BackendUnavailable if there is no driver."""
    driver = open_driver()
    return [_described(driver.facts(index)) for index in range(driver.count())]


def _described(facts: DeviceFacts) -> Mapping[str, str]:
    return {
        "kind": "gpu",
        "name": facts.name,
        "arch": facts.arch or f"none that is known ({capability_text(facts)})",
        "capability": f"{facts.capability // 10}.{facts.capability % 10}",
        "memory_bytes": str(facts.memory_bytes),
        "driver": f"CUDA {version_text(facts.driver)}",
        "toolkit": _toolkit(),
        "details": f"{facts.multiprocessors} multiprocessors",
    }


def _toolkit() -> str:
    """The version of the compiler's libraries; empty where they are not installed, and programs only run."""
    try:
        return f"NVVM {version('nvidia-nvvm')}"
    except PackageNotFoundError:
        return ""


def capability_text(facts: DeviceFacts) -> str:
    """The compute capability of a GPU in words."""
    return f"compute capability {facts.capability // 10}.{facts.capability % 10}"


def version_text(number: int) -> str:
    """A CUDA version as people write it: 13000 is 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"


# The real one

_EDGE_PROGRAMMATIC, _PORT_PROGRAMMATIC = 1, 1
"""`CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC` and `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`: the edge is satisfied when all
blocks have called `griddepcontrol.launch_dependents`, and `griddepcontrol.wait` waits for the rest."""

_STATIC_SHARED = 48 << 10
"""Dynamic shared memory that needs no permission."""


class CudaDriver:
    """`Driver` on this machine's GPUs.

    Raises BackendUnavailable if the Python package or the driver library is missing.
    """

    def __init__(self) -> None:
        try:
            self._api: Any = import_module("cuda.bindings.driver")
        except ImportError as error:
            raise BackendUnavailable(
                f"the package cuda-bindings does not import ({error}); {install('cuda')}"
            ) from None
        try:
            self._call("cuInit", 0)
            self._launch = ctypes.CDLL("libcuda.so.1").cuGraphLaunch
        except (OSError, RuntimeError):  # cuda.bindings has a RuntimeError of its own for a missing library
            raise BackendUnavailable(
                "this machine has no NVIDIA driver (libcuda.so.1); install one, or use target cpu"
            ) from None
        except DriverError as error:
            if error.code == 100:  # CUDA_ERROR_NO_DEVICE
                self._devices = 0
                return
            raise BackendUnavailable(f"the NVIDIA driver does not start: {error.message}") from None
        self._devices = self._call("cuDeviceGetCount")

    def _call(self, name: str, *arguments: object) -> Any:
        """Calls a driver function; its result without the status."""
        status, *values = getattr(self._api, name)(*arguments)
        if int(status) != 0:
            raise self._error(name, int(status))
        return values[0] if len(values) == 1 else tuple(values)

    def _error(self, call: str, code: int) -> DriverError:
        status = self._api.CUresult(code)
        _, text = self._api.cuGetErrorString(status)
        described = text.decode() if isinstance(text, bytes) else "unknown"
        return DriverError(call, code, f"{status.name} ({described})")

    # Devices

    def count(self) -> int:
        return self._devices

    def facts(self, device: int) -> DeviceFacts:
        handle = self._call("cuDeviceGet", device)
        attribute = self._api.CUdevice_attribute
        major, minor, multiprocessors = (
            self._call("cuDeviceGetAttribute", getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), handle)
            for name in ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT")
        )
        name = self._call("cuDeviceGetName", 128, handle).split(b"\0")[0].decode()
        memory = int(self._call("cuDeviceTotalMem", handle))
        return DeviceFacts(
            name, 10 * major + minor, memory, multiprocessors, self._call("cuDriverGetVersion")
        )

    def retain(self, device: int) -> int:
        return int(self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", device)))

    def release(self, device: int) -> None:
        self._call("cuDevicePrimaryCtxRelease", self._call("cuDeviceGet", device))

    def make_current(self, context: int) -> None:
        self._call("cuCtxSetCurrent", self._api.CUcontext(context))

    # Memory

    def allocate(self, nbytes: int) -> int:
        try:
            return int(self._call("cuMemAlloc", nbytes))
        except DriverError as error:
            raise self._short_of(nbytes, "GPU", error) from None

    def free(self, address: int) -> None:
        self._call("cuMemFree", self._api.CUdeviceptr(address))

    def allocate_pinned(self, nbytes: int) -> int:
        try:
            return int(self._call("cuMemHostAlloc", nbytes, 0))
        except DriverError as error:
            raise self._short_of(nbytes, "pinned host", error) from None

    def _short_of(self, nbytes: int, what: str, error: DriverError) -> AicfError:
        if error.code != OUT_OF_MEMORY:
            return error
        free, total = self.available()
        return BackendUnavailable(
            f"{nbytes:,} bytes of {what} memory cannot be allocated ({free:,} of {total:,} bytes of the GPU are free); "
            "end other processes on it, or use smaller dims"
        )

    def free_pinned(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def available(self) -> tuple[int, int]:
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyHtoDAsync", self._api.CUdeviceptr(target), source, nbytes, self._stream(stream))

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyDtoHAsync", target, self._api.CUdeviceptr(source), nbytes, self._stream(stream))

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        pair = self._api.CUdeviceptr(target), self._api.CUdeviceptr(source)
        self._call("cuMemcpyDtoDAsync", *pair, nbytes, self._stream(stream))

    def clear(self, target: int, nbytes: int, stream: int) -> None:
        self._call("cuMemsetD8Async", self._api.CUdeviceptr(target), 0, nbytes, self._stream(stream))

    # Streams and events

    def _stream(self, stream: int) -> Any:
        return self._api.CUstream(stream)

    def _event(self, event: int) -> Any:
        return self._api.CUevent(event)

    def open_stream(self, priority: int = 0) -> int:
        ordered = 0  # flags: ordered with the legacy default stream, on which others work
        return int(self._call("cuStreamCreateWithPriority", ordered, priority))

    def close_stream(self, stream: int) -> None:
        self._call("cuStreamDestroy", self._stream(stream))

    def synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", self._stream(stream))

    def synchronize_all(self) -> None:
        self._call("cuCtxSynchronize")

    def is_capturing(self, stream: int) -> bool:
        idle = self._api.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        return self._call("cuStreamIsCapturing", self._stream(stream)) != idle

    def exchange_capture_mode(self, mode: int) -> int:
        before = self._call("cuThreadExchangeStreamCaptureMode", self._api.CUstreamCaptureMode(mode))
        return int(before)

    def open_event(self) -> int:
        return int(self._call("cuEventCreate", 0))

    def close_event(self, event: int) -> None:
        self._call("cuEventDestroy", self._event(event))

    def record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", self._event(event), self._stream(stream))

    def wait(self, stream: int, event: int) -> None:
        self._call("cuStreamWaitEvent", self._stream(stream), self._event(event), 0)

    def is_over(self, event: int) -> bool:
        status = int(self._api.cuEventQuery(self._event(event))[0])
        if status not in (0, _NOT_READY):
            raise self._error("cuEventQuery", status)
        return status == 0

    def wait_for(self, event: int) -> None:
        self._call("cuEventSynchronize", self._event(event))

    def milliseconds(self, start: int, end: int) -> float:
        return float(self._call("cuEventElapsedTime", self._event(start), self._event(end)))

    # Code

    def load(self, image: bytes) -> int:
        return int(self._call("cuModuleLoadData", image))

    def unload(self, module: int) -> None:
        self._call("cuModuleUnload", self._api.CUmodule(module))

    def function(self, module: int, symbol: str) -> int:
        return int(self._call("cuModuleGetFunction", self._api.CUmodule(module), symbol.encode()))

    def allow_shared(self, function: int, nbytes: int) -> None:
        if nbytes > _STATIC_SHARED:
            limit = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", self._api.CUfunction(function), limit, nbytes)

    def encode(self, tensor: TensorMap, address: int) -> bytes:
        return encoded(self._api, self._call, tensor, address)

    def run(self, kernel: KernelParams, stream: int) -> None:
        config = self._api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = kernel.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = kernel.block
        config.sharedMemBytes = kernel.shared_bytes
        config.hStream = self._stream(stream)
        if kernel.cluster != (1, 1, 1):
            attribute = self._api.CUlaunchAttribute()
            attribute.id = self._api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value = self._cluster(self._api.CUlaunchAttributeValue(), kernel.cluster)
            config.attrs, config.numAttrs = [attribute], 1
        function = self._api.CUfunction(kernel.function)
        self._call("cuLaunchKernelEx", config, function, kernel.arguments.address, 0)

    def _cluster(self, value: Any, cluster: Triple) -> Any:
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
        return value

    # Graphs

    def new_graph(self) -> int:
        return int(self._call("cuGraphCreate", 0))

    def _node(self, node: int) -> Any:
        return self._api.CUgraphNode(node)

    def _kernel_params(self, kernel: KernelParams) -> Any:
        params = self._api.CUDA_KERNEL_NODE_PARAMS()
        params.func = self._api.CUfunction(kernel.function)
        params.gridDimX, params.gridDimY, params.gridDimZ = kernel.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = kernel.block
        params.sharedMemBytes = kernel.shared_bytes
        params.kernelParams = kernel.arguments.address
        return params

    def add_kernel(self, graph: int, kernel: KernelParams, after: Sequence[GraphEdge]) -> int:
        handle = self._api.CUgraph(graph)
        node = self._call("cuGraphAddKernelNode", handle, [], 0, self._kernel_params(kernel))
        if kernel.cluster != (1, 1, 1):
            value = self._cluster(self._api.CUkernelNodeAttrValue(), kernel.cluster)
            attribute = self._api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            self._call("cuGraphKernelNodeSetAttribute", node, attribute, value)
        if after:
            sources = [self._node(edge.node) for edge in after]
            kinds = [self._edge(edge.programmatic) for edge in after]
            self._call("cuGraphAddDependencies", handle, sources, [node] * len(after), kinds, len(after))
        return int(node)

    def _edge(self, programmatic: bool) -> Any:
        data = self._api.CUgraphEdgeData()
        if programmatic:
            data.from_port, data.type = _PORT_PROGRAMMATIC, _EDGE_PROGRAMMATIC
        return data

    def add_event(self, graph: int, event: int, after: Sequence[int]) -> int:
        nodes = [self._node(node) for node in after]
        handle = self._api.CUgraph(graph)
        return int(self._call("cuGraphAddEventRecordNode", handle, nodes, len(nodes), self._event(event)))

    def capture(
        self, graph: int, stream: int, after: Sequence[int], work: Callable[[], None]
    ) -> tuple[int, ...]:
        nodes = [self._node(node) for node in after]
        mode = self._api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        queue, handle = self._stream(stream), self._api.CUgraph(graph)
        self._call("cuStreamBeginCaptureToGraph", queue, handle, nodes, None, len(nodes), mode)
        try:
            work()
            _, _, _, ends, *_ = self._call("cuStreamGetCaptureInfo", queue)
        except BaseException:
            self._api.cuStreamEndCapture(queue)  # the first error is the one to tell
            raise
        self._call("cuStreamEndCapture", queue)
        return tuple(int(node) for node in ends)

    def instantiate(self, graph: int, stream: int) -> int:
        executable = self._call("cuGraphInstantiate", self._api.CUgraph(graph), 0)
        self._call("cuGraphUpload", executable, self._stream(stream))
        return int(executable)

    def launcher(self, executable: int, stream: int) -> Callable[[], None]:
        launch = partial(self._launch, ctypes.c_void_p(executable), ctypes.c_void_p(stream))

        def queue_one() -> None:
            if status := launch():
                raise self._error("cuGraphLaunch", status)

        return queue_one

    def set_kernel(self, executable: int, node: int, kernel: KernelParams) -> None:
        params = self._kernel_params(kernel)
        handle = self._api.CUgraphExec(executable)
        self._call("cuGraphExecKernelNodeSetParams", handle, self._node(node), params)

    def close_graph(self, graph: int) -> None:
        self._call("cuGraphDestroy", self._api.CUgraph(graph))

    def close_executable(self, executable: int) -> None:
        self._call("cuGraphExecDestroy", self._api.CUgraphExec(executable))
