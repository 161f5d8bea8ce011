"""Ops of packages in programs: through the builder and text, passes, targets, gradients and artifacts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest

import aicf
from aicf.errors import InvalidIR, PolicyError, UnsupportedOp
from aicf.kernels import CpuFunction, TensorSpec
from aicf.testing import check_kernel
from tests.kernels import top_p

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)


def softmax(x):
    """In float64."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def filtered(shape=("N", 64), p=0.9):
    """A product, the filter, and a softmax of what it leaves."""
    graph = aicf.Graph("filtered")
    x, w = graph.input("x", shape), graph.param("w", (50, 64))
    kept = graph.op("acme.top_p", graph.linear(x, w, name="fc"), p=p, name="filter")
    graph.output(graph.softmax(kept, name="prob"), "y")
    return graph


WEIGHTS = {"w": RNG.standard_normal((50, 64), np.float32) * np.float32(0.2)}


@pytest.mark.parametrize(("target", "threads"), [("cpu", 2), ("reference", 1)])
def test_an_op_between_a_product_and_a_softmax(target: str, threads: int) -> None:
    """Of symbolic sizes; next to float64."""
    top_p.define()
    exe = aicf.compile(filtered(), WEIGHTS, target, dims="N=1,7", threads=threads)
    for rows in (1, 7):
        x = RNG.standard_normal((rows, 64), np.float32)
        expected = softmax(top_p.top_p(x.astype(float) @ WEIGHTS["w"].astype(float).T, p=0.9))
        np.testing.assert_allclose(exe(x), expected, atol=1e-6)
    if target == "cpu":
        kernels = [launch.kernel for launch in exe.plan.programs[-1].launches]
        assert kernels[1:] == ["acme.top_p_cpu", "cpu.generated"]


def test_it_is_a_wall_for_fusion_and_explained() -> None:
    top_p.define()
    exe = aicf.compile(filtered((4, 64)), WEIGHTS, "cpu")
    assert "select-kernels of filter: acme.top_p_cpu, because the only legal kernel" in str(
        exe.explain("filter")
    )
    why = str(exe.why_not("fc", "filter"))
    assert "only elementwise ops of the product's shape can be its epilogue" in why


def test_text_gives_the_same_program() -> None:
    top_p.define()
    exe = aicf.compile(filtered((4, 64)), WEIGHTS, "cpu")
    again = aicf.compile(exe.ir("logical"), WEIGHTS, "cpu")
    assert again.ir("emit") == exe.ir("emit")
    x = RNG.standard_normal((4, 64), np.float32)
    assert np.array_equal(exe(x), again(x))


def test_operands_seen_through_views_are_copied() -> None:
    """The kernel takes row-major matrices: a transposed operand is copied, its own result may be transposed freely."""
    top_p.define()
    graph = aicf.Graph("views")
    x = graph.input("x", (6, 5))
    graph.output(
        graph.transpose(graph.op("acme.top_p", graph.transpose(x, [1, 0]), p=0.5, name="filter"), [1, 0]), "y"
    )
    exe = aicf.compile(graph, target="cpu")
    values = RNG.standard_normal((6, 5), np.float32)
    assert np.array_equal(exe(values), top_p.top_p(values.T, p=0.5).T)


def test_a_strided_kernel_takes_views_as_they_are() -> None:
    """Strides as arguments; nothing is copied."""

    def doubled(x, y, rows, columns, step, neighbour):
        for row in range(rows):
            for column in range(columns):
                y[row * columns + column] = 2 * x[row * step + column * neighbour]

    aicf.custom_op("acme.double", lambda x: 2 * x)
    aicf.kernel(
        "acme.strided",
        runs="acme.double",
        code=CpuFunction(doubled),
        strided=True,
        arguments=lambda problem: (*problem.operands[0].shape, *problem.operands[0].strides),
        legal=lambda problem: None if problem.results[0].strides[-1] == 1 else "it writes rows",
    )
    graph = aicf.Graph("views")
    graph.output(graph.op("acme.double", graph.transpose(graph.input("x", (6, 5)), [1, 0])), "y")
    exe = aicf.compile(graph, target="cpu")
    assert [launch.kernel for launch in exe.plan.programs[0].launches] == ["acme.strided"]
    values = RNG.standard_normal((6, 5), np.float32)
    assert np.array_equal(exe(values), 2 * values.T)


@numba.njit
def counted(x, count, least):
    """A loop that the compiler writes out, and so does not inline."""
    found = 0
    for index in range(count):
        if x[index] >= least:
            found += 1
    return found


def halved(x, count, share):
    """The largest power of two that so many elements reach."""
    least = 1.0
    while least > 1e-3 and counted(x, count, least) < share * count:
        least /= 2
    while counted(x, count, 2 * least) >= share * count:
        least *= 2
    return least


def test_functions_that_a_kernel_calls_and_that_stay_functions() -> None:
    aicf.custom_op(
        "acme.reached", lambda x: np.full(1, halved(x, len(x), 0.5)), result=lambda x: replace(x, shape=(1,))
    )
    inner = numba.njit(halved)

    def reached(x, y, count):
        y[0] = inner(x, count, 0.5)

    kernel = aicf.kernel(
        "acme.reached_cpu",
        runs="acme.reached",
        code=CpuFunction(reached),
        arguments=lambda problem: (problem.operands[0].size,),
    )
    check_kernel(kernel, np.abs(RNG.standard_normal(999, np.float32)))


# Formulas


def softcap(x, *, cap: float = 30.0):
    return cap * np.tanh(x / cap)


def softcap_formula(graph, x, *, cap):
    return graph.tanh(x / cap) * cap


def capped():
    graph = aicf.Graph("capped")
    x, w = graph.input("x", (4, 64)), graph.param("w", (50, 64))
    graph.output(graph.op("acme.softcap", graph.linear(x, w, name="fc"), cap=2, name="cap"), "y")
    return graph


def test_a_pointwise_op_is_fused_into_the_epilogue_of_a_product() -> None:
    aicf.custom_op("acme.softcap", softcap, formula=softcap_formula, pointwise=True)
    exe = aicf.compile(capped(), WEIGHTS, "cpu")
    assert len(exe.plan.programs[-1].launches) == 1 and 'emit.resolved "gemm_epilogue"' in exe.ir("emit")
    x = RNG.standard_normal((4, 64), np.float32)
    expected = softcap(x.astype(float) @ WEIGHTS["w"].astype(float).T, cap=2.0)
    np.testing.assert_allclose(exe(x), expected, atol=2e-6)


def test_the_formula_runs_where_no_kernel_does() -> None:
    """A kernel of f64 alone: f32 is written as the formula, after the ledger has the kernel's reason."""
    aicf.custom_op("acme.softcap", softcap, formula=softcap_formula)

    def capped_f64(x, y, n, cap):
        for i in range(n):
            y[i] = cap * np.tanh(x[i] / cap)

    aicf.kernel(
        "acme.softcap_f64",
        runs="acme.softcap",
        code=CpuFunction(capped_f64),
        dtypes=("f64",),
        arguments=lambda problem: (problem.operands[0].size, problem.attributes["cap"]),
    )
    exe = aicf.compile(capped(), WEIGHTS, "cpu")
    assert 'emit.resolved "gemm_epilogue"' in exe.ir("emit")
    explained = str(exe.explain("cap"))
    assert "its formula" in explained and "element type f32 is not one of f64" in explained
    graph = aicf.Graph("wide")
    graph.output(graph.op("acme.softcap", graph.input("x", (4, 5), "f64")), "y")
    wide = aicf.compile(graph, target="cpu")
    assert [launch.kernel for launch in wide.plan.programs[0].launches] == ["acme.softcap_f64"]
    x = RNG.standard_normal((4, 5))
    np.testing.assert_allclose(wide(x), softcap(x), rtol=1e-14)


def test_the_formula_is_simplified_where_no_kernel_is_for_the_op() -> None:
    """Though other ops of packages have kernels on the target: a factor of 1 is gone before anything is fused."""
    top_p.define()
    aicf.custom_op("acme.scaled", lambda x: 1.0 * x, formula=lambda graph, x: graph.tanh(x) * 1.0)
    graph = aicf.Graph("scaled")
    graph.output(graph.op("acme.scaled", graph.input("x", (4, 5)), name="scaled"), "y")
    lowered = aicf.compile(graph, target="cpu").ir("lowered")
    assert "logical.tanh" in lowered and "logical.mul" not in lowered and "logical.custom" not in lowered


# Gradients


def train(op, **gradient):
    graph = aicf.Graph("train")
    x, w = graph.input("x", (8, 5)), graph.param("w", (3, 5))
    graph.output(graph.op(op, graph.linear(x, w), **gradient), "prediction")
    return aicf.train_step(graph, "mse", aicf.optimizers.SGD(lr=0.1), target="cpu", weights=start())


def start():
    return {"w": np.random.default_rng(3).standard_normal((3, 5), np.float32)}


def after_one_step(x, y):
    """The weights after a step on mean((2 * tanh(x w' / 2) - y) ** 2), in float64."""
    w = start()["w"].astype(float)
    inner = np.tanh(x @ w.T / 2)
    grad = 2 * (2 * inner - y) / y.size * (1 - inner**2)
    return w - 0.1 * grad.T @ x


def by_formula():
    aicf.custom_op("acme.softcap", softcap, formula=softcap_formula)


def by_rule():
    """Through another op of the package."""

    def slope(x, *, cap: float):
        return 1 - np.tanh(x / cap) ** 2

    aicf.custom_op(
        "acme.softcap_slope", slope, formula=lambda g, x, *, cap: 1 - g.tanh(x / cap) * g.tanh(x / cap)
    )
    aicf.custom_op(
        "acme.softcap",
        softcap,
        formula=softcap_formula,
        gradient=lambda g, x, grad, *, cap: grad * g.op("acme.softcap_slope", x, cap=cap),
    )


@pytest.mark.parametrize("define", [by_formula, by_rule])
def test_gradients(define) -> None:
    define()
    step = train("acme.softcap", cap=2.0)
    x, y = RNG.standard_normal((8, 5), np.float32), RNG.standard_normal((8, 3), np.float32)
    step(x, y)
    np.testing.assert_allclose(
        step.weights()["w"], after_one_step(x.astype(float), y.astype(float)), atol=2e-6
    )


def test_an_op_without_a_gradient_is_an_error() -> None:
    aicf.custom_op("acme.softcap", softcap)
    with pytest.raises(UnsupportedOp, match="op 'acme.softcap' .* has no gradient"):
        train("acme.softcap", cap=2.0)


# Sessions


def test_a_session_compiles_again_after_an_edit(tmp_path: Path) -> None:
    """What is on disk was made with the code of before."""

    def doubled(x, y, n):
        for i in range(n):
            y[i] = 2 * x[i]

    def tripled(x, y, n):
        for i in range(n):
            y[i] = 3 * x[i]

    found = []
    for function in (doubled, doubled, tripled):
        aicf.custom_op("acme.times", lambda x: 2 * x)
        aicf.kernel(
            "acme.times_cpu",
            runs="acme.times",
            code=CpuFunction(function),
            arguments=lambda problem: (problem.operands[0].size,),
        )
        graph = aicf.Graph("times")
        graph.output(graph.op("acme.times", graph.input("x", (4,))), "y")
        with aicf.InferenceSession(graph, cache_dir=tmp_path, device="cpu") as session:
            found.append(float(session.run({"x": np.ones(4, np.float32)})["y"][0]))
    assert found == [2.0, 2.0, 3.0]
    assert len([path for path in tmp_path.rglob("*.aicf")]) == 2


# Errors


def halves(x, *, axis: int = 0):
    return np.split(x, 2, axis)[0]


def half_of(x, *, axis):
    if x.shape[axis] % 2:
        raise ValueError(f"axis {axis} has {x.shape[axis]} elements, an odd number")
    shape = list(x.shape)
    shape[axis] //= 2
    return TensorSpec(tuple(shape), x.dtype)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g, x: g.op("acme.halfs", x), "op 'acme.halfs' is not defined here: did you mean 'acme.half'"),
        (
            lambda g, x: g.op("other.op", x),
            "op 'other.op' is not defined here: import or install the package",
        ),
        (lambda g, x: g.op("acme.half"), "op 'acme.half' takes 1 operands, given are 0"),
        (lambda g, x: g.op("acme.half", x, x), "op 'acme.half' takes 1 operands, given are 2"),
        (
            lambda g, x: g.op("acme.half", x, axis=1),
            "result rule refuses the operands: axis 1 has 5 elements",
        ),
        (lambda g, x: g.op("acme.half", x, dim=1), "op 'acme.half' has no attribute 'dim'; it has: axis"),
        (lambda g, x: g.op("acme.scaled", x), "op 'acme.scaled' needs attribute 'factor'"),
        (
            lambda g, x: g.op("acme.scaled", x, factor="2"),
            "attribute 'factor' of op 'acme.scaled' is '2'; it is a number",
        ),
        (lambda g, x: g.op("acme.half", 3.0), "an operand is a Python float"),
    ],
)
def test_the_builder_refuses_what_an_op_is_not_defined_for(make, message: str) -> None:
    def scaled(x, *, factor: float):
        return factor * x

    aicf.custom_op("acme.half", halves, result=half_of)
    aicf.custom_op("acme.scaled", scaled)
    graph = aicf.Graph("wrong")
    with pytest.raises(InvalidIR, match=message) as error:
        make(graph, graph.input("x", (4, 5)))
    assert error.value.location is not None and "test_custom_ops.py" in error.value.location


TEXT = """
func.func @f(%x : tensor<4x5xf32> {{logical.name = "x", logical.role = "input"}})
    -> ({result} {{logical.name = "y"}}) {{
  %y = logical.custom "acme.half" %x {{version = {version}, parameters = {parameters}}}
      : (tensor<4x5xf32>) -> {result}
  func.return %y : {result}
}}
"""


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": 2}, "'acme.half' is of version 1 here .* the program was written for version 2"),
        ({"parameters": "{}"}, r"parameters are {}; written out they are {axis = 0 : i64}"),
        (
            {"result": "tensor<4x5xf32>"},
            "result type is tensor<4x5xf32>, but 'acme.half' gives tensor<2x5xf32>",
        ),
    ],
)
def test_text_that_contradicts_the_definition(changed, message: str) -> None:
    aicf.custom_op("acme.half", halves, result=half_of)
    given = {"version": 1, "parameters": "{axis = 0}", "result": "tensor<2x5xf32>"}
    assert aicf.compile(TEXT.format(**given), target="reference")(np.ones((4, 5), np.float32)).shape == (2, 5)
    with pytest.raises(InvalidIR, match=message):
        aicf.compile(TEXT.format(**{**given, **changed}), target="reference")


def test_an_op_that_nothing_here_defines() -> None:
    text = TEXT.format(version=1, parameters="{axis = 0}", result="tensor<2x5xf32>")
    with pytest.raises(UnsupportedOp, match="op 'acme.half' is not defined here: import or install") as error:
        aicf.compile(text, target="reference")
    assert error.value.location == "<model>:4:3"


def test_an_op_without_a_kernel_or_a_formula() -> None:
    aicf.custom_op("acme.half", halves, result=half_of)
    text = TEXT.format(version=1, parameters="{axis = 0}", result="tensor<2x5xf32>")
    with pytest.raises(UnsupportedOp, match=r"no kernel of target cpu runs 'y' \(acme.half\)"):
        aicf.compile(text, target="cpu")


@pytest.mark.parametrize(
    ("meaning", "message"),
    [
        (lambda x: x[:2], r"its meaning gives shape \[2, 5\], its result rule \[4, 5\]"),
        (lambda x: 1 / 0, "its meaning raises ZeroDivisionError: division by zero"),
        (lambda x: x.__setitem__(0, 0), "its meaning raises ValueError: assignment destination is read-only"),
    ],
)
def test_meanings_that_are_wrong(meaning, message: str) -> None:
    aicf.custom_op("acme.wrong", meaning)
    graph = aicf.Graph("wrong")
    graph.output(graph.op("acme.wrong", graph.input("x", (4, 5))), "y")
    exe = aicf.compile(graph, target="reference")
    with pytest.raises(InvalidIR, match=f"op 'acme.wrong': {message}"):
        exe(np.ones((4, 5), np.float32))


def test_definitions_that_are_none() -> None:
    for name in ("top_p", "logical.top_p", "a b.c", ""):
        with pytest.raises(PolicyError, match="a name is package.op"):
            aicf.custom_op(name, halves)
    with pytest.raises(PolicyError, match="is pointwise: give its formula"):
        aicf.custom_op("acme.half", halves, pointwise=True)


def test_two_packages_with_one_name() -> None:
    """A definition of the same module replaces the older one, as when a cell of a notebook runs again."""
    aicf.custom_op("acme.half", halves, result=half_of)
    aicf.custom_op("acme.half", halves)
    other = {"__name__": "other_package", "aicf": aicf, "halves": halves}
    with pytest.raises(PolicyError, match="is defined by tests.kernels.test_custom_ops and by other_package"):
        exec("aicf.custom_op('acme.half', halves)", other)
    top_p.define()
    define = "aicf.kernel('acme.top_p_cpu', runs='acme.top_p', code=code)"
    with pytest.raises(PolicyError, match="is defined by tests.kernels.top_p and by other_package"):
        exec(define, {**other, "code": CpuFunction(top_p.top_p_rows)})


# Artifacts

RUN = """
import sys
import numpy as np
import aicf
from aicf.errors import AicfError

exe = aicf.load(sys.argv[1])
np.save(sys.argv[2], exe(np.load(sys.argv[3])))
print(exe.explain("filter"))
for again in (lambda: aicf.load(sys.argv[1], native="rebuild"), lambda: exe.ir("lowered")):
    try:
        again()
    except AicfError as error:
        print(error.message)
"""


def test_an_artifact_runs_without_the_package(tmp_path: Path) -> None:
    """Another process, in which nothing defines the op: it has the code. What compiles again needs the package."""
    top_p.define()
    exe = aicf.compile(filtered((4, 64)), WEIGHTS, "cpu")
    exe.save(tmp_path / "filtered.aicf")
    x = RNG.standard_normal((4, 64), np.float32)
    np.save(tmp_path / "x.npy", x)
    paths = [str(tmp_path / name) for name in ("filtered.aicf", "y.npy", "x.npy")]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *paths], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert np.array_equal(np.load(tmp_path / "y.npy"), exe(x))
    assert "acme.top_p_cpu, because the only legal kernel" in done.stdout
    missing = "has no kernel 'acme.top_p_cpu': import or install the package 'acme' that defines it"
    assert missing in done.stdout
    assert "op 'acme.top_p' is not defined here" in done.stdout


def test_a_kernel_that_was_edited_is_noticed(tmp_path: Path) -> None:
    """By the digest of its code, where the program is compiled again."""
    top_p.define()
    aicf.compile(filtered((4, 64)), WEIGHTS, "cpu").save(tmp_path / "old.aicf")

    def edited(x, y, rows, columns, p):
        for i in range(rows * columns):
            y[i] = x[i]

    aicf.kernel(
        "acme.edited",
        runs="acme.top_p",
        code=CpuFunction(edited),
        arguments=lambda problem: (*top_p.rows_and_columns(problem), problem.attributes["p"]),
    )
    text = aicf.load(tmp_path / "old.aicf").ir("emit").replace('"acme.top_p_cpu"', '"acme.edited"')
    with pytest.raises(aicf.AicfError, match="kernel 'acme.edited' has .* here: it was edited since"):
        aicf.compile(text, WEIGHTS)


def test_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    """Numba counts what it compiled before: nothing of that is in the code."""
    top_p.define()
    aicf.compile(filtered((4, 64)), WEIGHTS, "cpu").save(tmp_path / "here.aicf")
    build = (
        "import sys, aicf\nfrom tests.kernels import test_custom_ops as t, top_p\ntop_p.define()\n"
        "aicf.compile(t.filtered((4, 64)), t.WEIGHTS, 'cpu').save(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", build, str(tmp_path / "there.aicf")], check=True, cwd=ROOT)
    assert (tmp_path / "here.aicf").read_bytes() == (tmp_path / "there.aicf").read_bytes()
