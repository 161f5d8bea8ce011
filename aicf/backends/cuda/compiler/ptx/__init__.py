# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Every PTX instruction that our kernels use, as Numba intrinsics, and the types they are written with. Nothing else.

Addresses are u64 (global) or u32 (shared, as `shared_base` gives them). The names here are those that the text of a
kernel may use. Imported only where code is generated.
"""

from numba import (
    cuda as cuda,
)  # templates write cuda.threadIdx.x, cuda.syncthreads(), cuda.shfl_xor_sync(...)

from aicf.backends.cuda.compiler.ptx.arithmetic import *
from aicf.backends.cuda.compiler.ptx.float8 import *
from aicf.backends.cuda.compiler.ptx.hopper import *
from aicf.backends.cuda.compiler.ptx.intrinsics import *
from aicf.backends.cuda.compiler.ptx.memory import *
from aicf.backends.cuda.compiler.ptx.tiles import *
