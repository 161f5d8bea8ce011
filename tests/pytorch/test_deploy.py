"""Programs in a file, on the weights of a module of another process."""

from __future__ import annotations

import re
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

import aicf
import aicf.pytorch

pytestmark = [
    pytest.mark.peers,
    *(pytest.mark.filterwarnings(f"ignore:.*{text}") for text in ("isinstance.treespec", "`torch.jit")),
]


def refused(message: str) -> pytest.RaisesExc[aicf.InputMismatch]:
    """Expects the error with this text in its message."""
    return pytest.raises(aicf.InputMismatch, match=re.escape(message))


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    ).eval()


def saved(tmp_path: Path) -> Path:
    path = tmp_path / "network.aicf"
    sizes = ({0: torch.export.Dim("batch", max=64)},)
    aicf.pytorch.save(network(), path, (torch.randn(4, 8),), dynamic_shapes=sizes, dims="batch=1,5")
    return path


def test_it_runs_on_the_weights_that_a_module_has(tmp_path: Path) -> None:
    path, module = saved(tmp_path), network()
    loaded = aicf.pytorch.load(path, module)
    for batch in (1, 5, 1):
        x = torch.randn(batch, 8)
        torch.testing.assert_close(loaded(x), module(x))
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.mul_(1.5)
    torch.testing.assert_close(loaded(x), module(x))


def test_the_file_has_no_weights(tmp_path: Path) -> None:
    assert not any("weights" in entry for entry in aicf.saving.artifact.read(saved(tmp_path)).entries)


def test_other_sizes_and_modules_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(aicf.InputMismatch, match=r"no program was saved for input \(3, 8\)"):
        aicf.pytorch.load(path, network())(torch.randn(3, 8))
    with pytest.raises(aicf.InputMismatch, match="missing weight"):
        aicf.pytorch.load(path, torch.nn.Linear(8, 4))


def test_loading_traces_and_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, module = saved(tmp_path), network()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it traces or compiles")

    monkeypatch.setattr(torch.export, "export", refuse)
    monkeypatch.setattr("aicf.compilation.compiling.build_native", refuse)
    x = torch.ones(5, 8)
    torch.testing.assert_close(aicf.pytorch.load(path, module)(x), module(x))


def test_weights_that_no_longer_fit_are_refused(tmp_path: Path) -> None:
    path, module, x = saved(tmp_path), network(), torch.randn(5, 8)
    loaded = aicf.pytorch.load(path, module)
    expected = loaded(x)
    for change, dtype in ((module.double, "torch.float64"), (module.half, "torch.float16")):
        change()
        with refused(
            f"is {dtype}, and was torch.float32 when the programs were loaded; load the programs again"
        ):
            loaded(x)
    module.float()
    torch.testing.assert_close(loaded(x), expected, rtol=1e-2, atol=1e-2)  # the halves had fewer digits
    module[0].weight.data = module[0].weight.data.t().contiguous().t()
    with refused("'0.weight' has the strides (1, 16), and had (8, 1)"):
        loaded(x)
    with refused("'0.weight' is not row-major in memory"):
        aicf.pytorch.load(path, module)
    module[0].weight.data = module[0].weight.data.contiguous()
    torch.testing.assert_close(loaded(x), module(x))
    module[0].weight.data = torch.randn(16, 9)
    with refused("'0.weight' has the shape (16, 9), and had (16, 8)"):
        loaded(x)
    module[0].weight.data = torch.randn(16, 8)
    module.to("meta")
    with refused("is on meta, and was on cpu when the programs were loaded"):
        loaded(x)
    with refused("of the module is on meta, and the programs are for cpu; give one with values"):
        aicf.pytorch.load(path, module)


def test_it_runs_on_tensors_that_replaced_others(tmp_path: Path) -> None:
    path, module, x = saved(tmp_path), network(), torch.randn(5, 8)
    loaded = aicf.pytorch.load(path, module)
    before = loaded(x)
    other = {name: tensor * 2 for name, tensor in module.state_dict().items()}
    module.load_state_dict(other, assign=True)
    torch.testing.assert_close(loaded(x), module(x))
    assert not torch.allclose(loaded(x), before)
    module[3].weight = torch.nn.Parameter(torch.randn(4, 16))
    torch.testing.assert_close(loaded(x), module(x))
    module[0] = torch.nn.Linear(8, 16)
    torch.testing.assert_close(loaded(x), module(x))
    module[1].running_mean = torch.randn(16)
    torch.testing.assert_close(loaded(x), module(x))
    del module[0].bias
    with refused("the module has no parameter or buffer '0.bias' any more; load the programs again"):
        loaded(x)


def test_inputs_that_no_program_can_read_are_refused(tmp_path: Path) -> None:
    path, module, x = saved(tmp_path), network(), torch.randn(5, 8)
    loaded = aicf.pytorch.load(path, module)
    cases = [
        (x.to("meta"), "input 'input' is on meta, and the programs are for cpu; give one with values"),
        (x.to_sparse(), "input 'input' is sparse; make it dense with .to_dense()"),
        (torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged), "input 'input' is nested; pad it"),
        (x.tolist(), "input 'input' is a list; give a tensor, as torch.as_tensor does"),
        (x.numpy(), "input 'input' is a ndarray; give a tensor, as torch.as_tensor does"),
        (x.double(), "input 'input' is torch.float64, and the programs take torch.float32; cast it with"),
        (FakeTensorMode().from_tensor(x), "input 'input' is a FakeTensor, which has no memory of its own"),
    ]
    for _ in range(2):  # before and after a call whose checks later ones need not repeat
        for value, message in cases:
            with refused(message):
                loaded(value)
        torch.testing.assert_close(loaded(x), module(x))
    with refused("the module takes 1 input (input); 2 were given by position"):
        loaded(x, 3)
    with refused("input 'input' is given by position and by name; give it once"):
        loaded(x, input=x)
    with refused("the module takes 1 input (input); 'input' is missing"):
        loaded()
    with refused("the module takes 1 input (input), and none is called 'y'"):
        loaded(x, y=x)
    torch.testing.assert_close(loaded(input=x.t().contiguous().t()), module(x))


def test_a_call_may_differ_from_the_one_before(tmp_path: Path) -> None:
    path, module, x = saved(tmp_path), network(), torch.randn(5, 8)
    loaded, expected = aicf.pytorch.load(path, module), module(x).detach()
    transposed, negated = x.t().contiguous().t(), torch.complex(x, -x).conj().imag
    differentiable = x.clone().requires_grad_()
    assert negated.is_neg() and not transposed.is_contiguous()
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad):
        for value in (x, x, transposed, x, negated, differentiable, x[:1], torch.nn.Parameter(x), x):
            with mode():
                found = loaded(value)
            torch.testing.assert_close(found, expected[: len(value)])
        module.requires_grad_(not module[0].weight.requires_grad)
    module[3] = None
    for _ in range(2):
        with refused("the module has no parameter or buffer '3.bias' any more; load the programs again"):
            loaded(x)


def test_a_program_for_a_gpu_refuses_tensors_of_the_host(tmp_path: Path) -> None:
    path, module = tmp_path / "gpu.aicf", torch.nn.Linear(8, 4)
    aicf.pytorch.save(module, path, (torch.randn(5, 8),), options={"target": "cuda:sm_90"})
    with refused("'weight' of the module is on cpu, and the programs are for cuda; move it with .to('cuda')"):
        aicf.pytorch.load(path, module)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("fallback", "eager", "a saved program has no ops that PyTorch runs"),
        ("static_outputs", True, "each call of a loaded program returns new tensors"),
        ("memory_budget", 0.5, "a saved program has no gradients"),
        ("cache_dir", "folder", "the file itself holds the programs"),
        ("max_programs", 3, "dims says which programs are saved"),
        ("seed", 3, "a loaded program takes its seeds from PyTorch's generator, see torch.manual_seed"),
    ],
)
def test_options_without_effect_are_refused(tmp_path: Path, name: str, value: object, why: str) -> None:
    message = f"options: {name} has no effect in save: {why}; leave it out"
    with pytest.raises(aicf.PolicyError, match=re.escape(message)):
        aicf.pytorch.save(network(), tmp_path / "n.aicf", (torch.randn(4, 8),), options={name: value})


def test_dropout_takes_its_seed_from_the_generator_of_pytorch(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Dropout(0.5)).train()
    path, x = tmp_path / "dropout.aicf", torch.ones(64, 32)
    aicf.pytorch.save(module, path, (x,))
    loaded = aicf.pytorch.load(path, module)
    torch.manual_seed(5)
    first, second = loaded(x), loaded(x)
    torch.manual_seed(5)
    assert torch.equal(loaded(x), first) and not torch.equal(first, second)
    assert set(first.unique().tolist()) == {0.0, 2.0} and 0.4 < (first == 0).float().mean() < 0.6
    with refused("the module takes 1 input (input); 2 were given by position"):
        loaded(x, torch.tensor(3))


@dataclass
class Scores(transformers.utils.ModelOutput):
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    hidden: torch.Tensor | None = None


class Returning(torch.nn.Module):
    """Returns what a function makes of its input."""

    def __init__(self, make: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: torch.Tensor) -> Any:
        return self.make(x)


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor | None


@dataclass
class Point:
    x: torch.Tensor
    names: list[Any]
    missing: torch.Tensor | None = None


torch.export.register_dataclass(Point, serialized_type_name="tests.Point")


@dataclass
class Plain:
    x: torch.Tensor


torch.utils._pytree.register_dataclass(Plain)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: {"x": x * 2, "b": x + 1, "a": x - 1},
        lambda x: {"only": x * 2},
        lambda x: OrderedDict(second=x * 2, first=x + 1),
        lambda x: Scores(logits=x * 2, hidden=x.sum(1)),
        lambda x: (x * 2, x + 1),
        lambda x: (x * 2,),
        lambda x: x * 2,
        lambda x: [x * 2],
        lambda x: (x * 2, (x + 1, [x - 1, ()]), {"a": {"b": x, 3: (x,)}}),
        lambda x: {"x": x * 2, "no": None, "word": "w", "number": 3, "tuple": (True, x)},
        lambda x: Scores(logits=x * 2, hidden=(x, (x + 1, x + 2))),
        lambda x: (Scores(x.sum()), Pair(x, None), [Pair(Pair(x + 1, x), x * 3)]),
        lambda x: Point(x, [x + 1, Plain(x * 2)]),
        lambda x: (torch.max(x, 1), deque([x, x + 1], 5), defaultdict(list, {"a": x})),
        lambda x: (x, x, [x]),
    ],
)
def test_results_are_in_the_containers_of_the_module(
    tmp_path: Path, make: Callable[[torch.Tensor], Any]
) -> None:
    path, x = tmp_path / "results.aicf", torch.randn(4, 3)
    module = Returning(make)
    aicf.pytorch.save(module, path, (x,))
    loaded, expected = aicf.pytorch.load(path, module), module(x)
    for _ in range(2):
        assert_same_tree(loaded(x), expected)


def assert_same_tree(found: Any, expected: Any) -> None:
    """The same containers of the same classes, with the same keys in the same order, and close tensors."""
    assert type(found) is type(expected)
    flat, wanted = (torch.utils._pytree.tree_flatten_with_path(each)[0] for each in (found, expected))
    assert [path for path, _ in flat] == [path for path, _ in wanted]
    assert torch.utils._pytree.tree_map(type, found) == torch.utils._pytree.tree_map(type, expected)
    for (_, mine), (_, theirs) in zip(flat, wanted, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(mine, theirs)
        else:
            assert mine == theirs


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x: (x, [x.shape[0]]),
            "which is no tensor and changes with the inputs; return it as a tensor",
        ),
        (
            lambda x: {(1, 2): x},
            "returns a dict with keys or fields that JSON does not have: [(1, 2)]; return tensors under keys",
        ),
        (
            namedtuple("Here", "x"),
            "the module returns a Here, which tests.pytorch.test_deploy does not have under that name; define the "
            "class at the top of a module",
        ),
    ],
)
def test_results_that_no_file_can_say(
    tmp_path: Path, make: Callable[[torch.Tensor], Any], message: str
) -> None:
    sizes = ({0: torch.export.Dim("rows", max=8)},)
    with pytest.raises(aicf.UnsupportedOp, match=re.escape(message)):
        aicf.pytorch.save(
            Returning(make), tmp_path / "r.aicf", (torch.randn(4, 3),), dynamic_shapes=sizes, dims="rows=4"
        )


@pytest.mark.parametrize("is_there", [True, False])
def test_a_class_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    path, module = tmp_path / "point.aicf", Returning(lambda x: Point(x, []))
    aicf.pytorch.save(module, path, (torch.randn(4, 3),))
    if is_there:
        monkeypatch.delitem(torch.utils._pytree.SUPPORTED_NODES, Point)
    else:
        monkeypatch.delattr(sys.modules[__name__], "Point")
    message = (
        "the saved module returns a Point of tests.pytorch.test_deploy, which is not here, or not known to PyTorch; "
        "import and register the class before loading, as before saving"
    )
    with pytest.raises(aicf.ArtifactError, match=re.escape(message)):
        aicf.pytorch.load(path, module)


@pytest.mark.parametrize(
    "text",
    [
        *('["tensor"]', '"tenso"', '{"type": "builtins:tuple", "of": ["tensor"]}', "[" * 5000, "NaN"),
        *('{"of": "tensor"}', '{"type": 3, "context": null, "of": ["tensor"]}', "3", '["constant", 3]', ""),
        '{"type": "builtins:tuple", "context": null, "of": ["tensor", "tensor"]}',
    ],
)
def test_a_damaged_entry(tmp_path: Path, text: str) -> None:
    path, module = tmp_path / "results.aicf", Returning(lambda x: (x * 2,))
    aicf.pytorch.save(module, path, (torch.randn(4, 3),))
    file = aicf.saving.artifact.read(path)
    aicf.saving.artifact.write(path, {**file.entries, "results.json": text.encode()}, file.manifest)
    with pytest.raises(
        aicf.ArtifactError, match=r"entry 'results.json' .* is not as it was written; save it"
    ):
        aicf.pytorch.load(path, module)


def test_results_have_no_gradients(tmp_path: Path) -> None:
    path, module = tmp_path / "linear.aicf", torch.nn.Linear(8, 4)
    x = torch.randn(4, 8, requires_grad=True)
    aicf.pytorch.save(module, path, (x,))
    found = aicf.pytorch.load(path, module)(x)
    assert not found.requires_grad
    torch.testing.assert_close(found, module(x).detach())
