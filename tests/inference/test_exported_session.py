"""Sessions of exported programs of PyTorch: sizes by name, state, limits and the cache, against eager mode."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import InferenceSession
from aicf.errors import (
    ArtifactError,
    BackendUnavailable,
    InputMismatch,
    InvalidIR,
    PolicyError,
    UnsupportedOp,
)
from aicf.tools.aicf_cli import main
from tests.inference.models import rows

torch = pytest.importorskip("torch")
nn, Dim = torch.nn, torch.export.Dim
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]


class Scores(nn.Module):
    """Scores of words and their probabilities, of `batch` rows of `length` tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 50)

    def forward(self, tokens: Any, scale: Any) -> dict[str, Any]:
        """Results by name."""
        scores = self.head(self.norm(self.embedding(tokens))) * scale
        return {"scores": scores, "prob": scores.softmax(-1).mean(1)}


def made(kind: Callable[[], Any] = Scores, seed: int = 1) -> Any:
    """A module whose weights follow from the seed, in evaluation."""
    torch.manual_seed(seed)
    return kind().eval()


def tokens(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(batch * 1000 + length).integers(0, 50, (batch, length))


SCALE = np.float32([1.5])


def exported(module: Any = None, **sizes: Any) -> Any:
    """The program of `Scores`, for any batch and length where nothing else is said."""
    dims = {0: sizes.get("batch", Dim("batch", max=64)), 1: sizes.get("length", Dim("length", max=128))}
    given = torch.from_numpy(tokens(5, 6)), torch.from_numpy(SCALE)
    return torch.export.export(
        module or made(), given, dynamic_shapes={"tokens": dims, "scale": None}, strict=False
    )


def wanted(module: Any, *arrays: np.ndarray) -> dict[str, np.ndarray]:
    """What eager mode gives."""
    with torch.no_grad():
        results = module(*map(torch.from_numpy, arrays))
    return {name: value.numpy() for name, value in results.items()}


def assert_scores(found: Any, module: Any, given: np.ndarray) -> None:
    expected = wanted(module, given, SCALE)
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)


def test_sizes_go_by_the_names_of_their_dims() -> None:
    module = made()
    with InferenceSession(exported(module), dims={"batch": [1, 4], "length": 8}) as session:
        assert [(spec.name, spec.shape, spec.dtype) for spec in session.input_info] == [
            ("tokens", ("batch", "length"), "i64"),
            ("scale", (1,), "f32"),
        ]
        assert [(spec.name, spec.shape) for spec in session.output_info] == [
            ("scores", ("batch", "length", 50)),
            ("prob", ("batch", 50)),
        ]
        for batch, length in ((1, 8), (4, 8), (3, 5), (1, 1), (64, 7), (3, 5)):
            given = tokens(batch, length)
            assert_scores(session.run({"tokens": given, "scale": SCALE}), module, given)
        assert [event.program for event in session.report.of("compiled")] == [
            "batch=3, length=5",
            "batch=1, length=1",
            "batch=64, length=7",
        ]
        assert session.output_info[0].shape == ("batch", "length", 50)


def test_a_file_has_the_names_that_compile_uses(tmp_path: Path) -> None:
    module, path = made(), tmp_path / "scores.pt2"
    torch.export.save(exported(module), path)
    with pytest.raises(PolicyError, match="unbound symbolic dimensions: ") as caught:
        aicf.compile(path)
    with InferenceSession(path) as session:
        first, second = session.input_info[0].shape
        assert f"unbound symbolic dimensions: {first}, {second}; give sizes" in str(caught.value)
        given = tokens(2, 9)
        assert_scores(session.run([given, SCALE]), module, given)
        assert repr(session).startswith("InferenceSession(scores: ")
    with InferenceSession(
        path, dims=f"{first}=2;{second}=9", exec_policy={"new_shapes": "refuse"}
    ) as session:
        assert_scores(session.run([given, SCALE]), module, given)
        with pytest.raises(InputMismatch, match="no program for .*=3, .*=9; .*give these sizes in dims="):
            session.run([tokens(3, 9), SCALE])


def test_sizes_outside_of_the_range_are_refused() -> None:
    program = exported(batch=Dim("batch", min=4, max=8))
    with InferenceSession(program) as session:
        for batch in (3, 9):
            with pytest.raises(
                InputMismatch, match=f"batch is {batch}, and the program was exported for 4 to 8; export it"
            ):
                session.run([tokens(batch, 5), SCALE])
        assert_scores(session.run([tokens(4, 1), SCALE]), made(), tokens(4, 1))
    with pytest.raises(PolicyError, match="dims: batch is 9, and the program was exported for 4 to 8"):
        aicf.compile(program, dims="batch=9;length=5")
    with (
        InferenceSession(exported()) as session,
        pytest.raises(InputMismatch, match="batch must be at least 1"),
    ):
        session.run([tokens(0, 5), SCALE])


def test_inputs_are_checked_before_a_program_is_made() -> None:
    with InferenceSession(exported()) as session:
        for feeds, said in [
            ({"tokens": tokens(2, 3)}, "missing input scale"),
            ({"tokens": tokens(2, 3), "scales": SCALE}, "there is no input 'scales'; did you mean 'scale'"),
            ([tokens(2, 3).astype(np.int32), SCALE], "convert it"),
            ([tokens(2, 3)[0], SCALE], "rank must be 2, is 1"),
            ([tokens(2, 3), rows(2)], r"the model fixes dimension 0 to 1"),
        ]:
            with pytest.raises(InputMismatch, match=said) as caught:
                session.run(feeds)
            assert "\n" not in str(caught.value)
        assert session.report.of("compiled") == ()


class Pair(nn.Module):
    def forward(self, x: Any, y: Any, unread: Any) -> Any:
        """Rows of both, and twice as many rows of the second one."""
        return torch.cat([x, y]).cumsum(0) * 2


def test_sizes_that_follow_from_others() -> None:
    batch = Dim("batch")
    given = tuple(torch.from_numpy(rows(count, 4, seed=count)) for count in (3, 6, 2))
    program = torch.export.export(Pair(), given, dynamic_shapes=({0: batch}, {0: 2 * batch}, None))
    with InferenceSession(program) as session:
        assert [spec.shape for spec in session.input_info] == [("batch", 4), ("2*batch", 4), (2, 4)]
        assert session.output_info[0].shape == ("3*batch", 4)
        for count in (3, 5):
            feeds = [rows(count, 4), rows(2 * count, 4, seed=1), rows(2, 4)]
            (found,) = session.run(feeds).values()
            np.testing.assert_allclose(found, np.cumsum(np.concatenate(feeds[:2]), 0) * 2, 1e-4, 1e-5)
        with pytest.raises(InputMismatch, match="input 'y'"):
            session.run([rows(3, 4), rows(5, 4), rows(2, 4)])


def test_a_size_that_only_others_follow_from() -> None:
    """No input has the size itself: it is solved for. PyTorch keeps no name of it."""
    half = Dim("half")
    program = torch.export.export(nn.Softmax(-1), (torch.ones(6, 4),), dynamic_shapes=({0: 2 * half},))
    with InferenceSession(program) as session:
        for count in (4, 10):
            x = rows(count, 4, seed=count)
            (found,) = session.run([x]).values()
            np.testing.assert_allclose(found, torch.from_numpy(x).softmax(-1).numpy(), rtol=1e-5)
        with pytest.raises(InputMismatch, match=r"3 is no 2\*s\d+, for any s\d+; expected f32"):
            session.run([rows(3, 4)])


class Scaled(nn.Module):
    def forward(self, x: Any, factor: int, unread: Any) -> Any:
        """A number is an input too, and one input is of a type that AICF has not."""
        return x * factor + x.shape[0]


def test_a_number_that_is_an_input_is_a_size() -> None:
    given = torch.from_numpy(rows(4, 3)), 5, torch.ones(2, dtype=torch.complex64)
    sizes = ({0: Dim("batch")}, Dim.DYNAMIC, None)
    program = torch.export.export(Scaled(), given, dynamic_shapes=sizes)
    with pytest.raises(PolicyError, match=r"unbound symbolic dimensions: batch, (s\d+); ") as caught:
        aicf.compile(program)
    name = str(caught.value).partition("batch, ")[2].partition(";")[0]
    with InferenceSession(program, dims={name: 7}) as session:
        assert [spec.name for spec in session.input_info] == ["x"]
        for count in (4, 2):
            (found,) = session.run([rows(count, 3)]).values()
            np.testing.assert_allclose(found, rows(count, 3) * 7 + count, rtol=1e-6)
    said = f"no input has the dimension {name}; give one size of it in dims="
    with InferenceSession(program) as session, pytest.raises(InputMismatch, match=said):
        session.run([rows(4, 3)])


class Memory(nn.Module):
    """Attention over all positions so far, whose keys and values are in buffers."""

    keys: Any
    values: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 16, 8))
        self.register_buffer("values", torch.zeros(2, 16, 8))
        self.own = nn.Linear(8, 24)

    def forward(self, x: Any, at: Any) -> Any:
        """The new positions, which may be several."""
        query, key, value = self.own(x).chunk(3, -1)
        self.keys.index_copy_(1, at, key)
        self.values.index_copy_(1, at, value)
        past = torch.arange(16)[None, :] <= at[:, None]
        scores = (query @ self.keys.transpose(1, 2)).masked_fill(~past, float("-inf"))
        return scores.softmax(-1) @ self.values


def test_a_cache_of_keys_and_values_is_state() -> None:
    """A prompt of five tokens, then one token at a time, by two programs on one state."""
    module = made(Memory)
    theirs, count = copy.deepcopy(module), Dim("count", max=16)
    program = torch.export.export(
        module, (torch.ones(2, 5, 8), torch.arange(5)), dynamic_shapes=({1: count}, {0: count})
    )
    parts = [range(5), range(5, 6), range(6, 7)]

    def answers(session: InferenceSession) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        for part in parts:
            x = rows(2, len(part), 8, seed=part.start)
            found += session.run({"x": x, "at": np.array(part)}).values()
        return found

    with InferenceSession(program, dims="count=1,5") as session:
        start = session.state("keys", "values")
        session.warm_up()
        with torch.no_grad():
            expected = [
                theirs(torch.from_numpy(rows(2, len(part), 8, seed=part.start)), torch.tensor(part)).numpy()
                for part in parts
            ]
        for found, value in zip(answers(session), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(session.state()["keys"], theirs.keys.numpy(), rtol=1e-4, atol=1e-5)
        session.set_state(start)
        for found, value in zip(answers(session), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
        with pytest.raises(InputMismatch, match="count"):
            session.run({"x": rows(2, 3, 8), "at": np.arange(3)})
    assert not module.keys.any()  # the session has a state of its own
    with pytest.raises(PolicyError, match="unbound symbolic dimensions: count; give sizes"):
        InferenceSession(program)


def test_programs_stay_within_limits() -> None:
    module = made()
    with InferenceSession(exported(module), exec_policy={"max_programs": 2}) as session:
        for batch in (1, 2, 1, 3, 2):
            assert_scores(session.run([tokens(batch, 4), SCALE]), module, tokens(batch, 4))
        assert [event.program for event in session.report.of("evicted")] == [
            "batch=2, length=4",
            "batch=1, length=4",
        ]
    with pytest.raises(PolicyError, match="max_bytes"):
        InferenceSession(exported(module), dims="batch=4;length=4", exec_policy={"max_bytes": 16})


def entries(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.aicf")}


def test_the_cache_serves_the_next_session(tmp_path: Path) -> None:
    torch.export.save(exported(), tmp_path / "scores.pt2")
    for what in ("compiled", "loaded"):
        for model in (tmp_path / "scores.pt2", exported()):
            with InferenceSession(model, cache_dir=tmp_path / "cache") as session:
                assert_scores(session.run([tokens(2, 6), SCALE]), made(), tokens(2, 6))
                assert len(session.report.of(what)) == 1
    assert len(entries(tmp_path / "cache")) == 2  # names of sizes and of the model are part of the text


def test_an_entry_has_no_weights_and_other_programs_have_other_entries(tmp_path: Path) -> None:
    def served(module: Any) -> str:
        with InferenceSession(exported(module), cache_dir=tmp_path) as session:
            assert_scores(session.run([tokens(2, 6), SCALE]), module, tokens(2, 6))
            (event,) = (*session.report.of("compiled"), *session.report.of("loaded"))
            return event.what

    class Doubled(Scores):
        def forward(self, tokens: Any, scale: Any) -> dict[str, Any]:
            """Another program on the same weights."""
            return super().forward(tokens, scale * 2)

    assert served(made()) == "compiled"
    assert served(made(seed=2)) == "loaded"  # and with its own weights, as `served` asserts
    assert len(entries(tmp_path)) == 1
    assert served(made(Doubled)) == "compiled"
    assert len(entries(tmp_path)) == 2


def test_an_entry_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    for what in ("compiled", "compiled", "loaded"):
        with InferenceSession(exported(), cache_dir=tmp_path) as session:
            assert_scores(session.run([tokens(2, 6), SCALE]), made(), tokens(2, 6))
            assert len(session.report.of(what)) == 1
        (entry,) = tmp_path.glob("*.aicf")
        if what == "compiled" and not (tmp_path / "seen").exists():
            (tmp_path / "seen").touch()
            data = bytearray(entry.read_bytes())
            data[len(data) // 2] ^= 0xFF
            entry.write_bytes(data)


def test_threads_ask_for_several_sizes_at_once() -> None:
    module = made()
    with InferenceSession(exported(module), threads=2) as session:

        def work(number: int) -> None:
            given = tokens(1 + number % 3, 4)
            for _ in range(4):
                assert_scores(session.run([given, SCALE]), module, given)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work, number) for number in range(9)]:
                done.result()
        assert len(session.report.of("compiled")) == 3
        assert all(program.executable.plan.threads == 2 for program in session._session._programs.all)


def test_bound_memory_profile_and_use() -> None:
    module = made()
    with InferenceSession(exported(module)) as session:
        given, out = tokens(2, 3), np.empty((2, 50), np.float32)
        session.warm_up({"batch": 2, "length": 3})
        binding = session.bind(tokens=given, scale=SCALE, prob=out)
        binding.run()
        np.testing.assert_allclose(out, wanted(module, given, SCALE)["prob"], rtol=1e-4, atol=1e-5)
        binding.bind(tokens=tokens(5, 3), prob=np.empty((5, 50), np.float32)).run()
        assert_scores(binding.outputs(), module, tokens(5, 3))
        assert {name.partition(".")[0] for name in session.profile([given, SCALE], 2).by_source()} >= {"head"}
        assert session.memory.weights == sum(each.nbytes for each in module.parameters())
        assert "tokens: i64[batch, length]" in str(session.placement())


def test_given_weights_take_the_place_of_its_own() -> None:
    other = made(seed=7)
    weights = {name: value.detach().numpy() for name, value in other.state_dict().items()}
    with InferenceSession(exported(), weights) as session:
        assert_scores(session.run([tokens(2, 6), SCALE]), other, tokens(2, 6))


def test_random_numbers_follow_from_an_input() -> None:
    class Noisy(nn.Module):
        def forward(self, x: Any) -> Any:
            """Numbers from 0 to 1, and the operand."""
            return x + torch.rand(x.shape)

    program = torch.export.export(Noisy(), (torch.zeros(4, 3),), dynamic_shapes=({0: Dim("batch")},))
    with InferenceSession(program) as session:
        assert [spec.name for spec in session.input_info] == ["x", "aicf.seed"]
        x = rows(5, 3)
        results = [session.run([x, np.array(seed)]) for seed in (3, 3, 4)]
        one, same, other = (next(iter(each.values())) - x for each in results)
        np.testing.assert_array_equal(one, same)
        assert (one != other).any()
        assert 0 <= one.min() < one.max() < 1.001


def test_a_model_of_fixed_sizes_is_compiled_when_it_opens() -> None:
    module = made()
    program = torch.export.export(module, (torch.from_numpy(tokens(3, 5)), torch.from_numpy(SCALE)))
    with InferenceSession(program, device="reference") as session:
        assert session.target.startswith("reference")
        assert "one program, its sizes are fixed" in str(session.placement())
        assert_scores(session.run([tokens(3, 5), SCALE]), module, tokens(3, 5))


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"dims": "rows=2"}, PolicyError, "no symbolic dimension rows; its dimensions are: batch, length"),
        ({"values": {"scale": [1]}}, PolicyError, "only inputs of ONNX models are bound to values"),
        ({"strict": True}, PolicyError, "strict: only ONNX models"),
        (
            {"weights": {"heads": SCALE}, "dims": "batch=1;length=2"},
            InputMismatch,
            "there is no weight 'heads'",
        ),
        ({"device": "tpu"}, PolicyError, "tpu"),
    ],
)
def test_options_without_effect_are_refused(
    options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        InferenceSession(exported(), **options)
    assert "\n" not in str(caught.value)


def test_an_op_without_a_counterpart_is_told_when_the_session_opens() -> None:
    class Own(nn.Module):
        def forward(self, x: Any) -> Any:
            """QR."""
            return torch.geqrf(x)[0]

    program = torch.export.export(Own(), (torch.ones(3, 3),))
    with pytest.raises(UnsupportedOp, match="op aten.geqrf.default is not supported"):
        InferenceSession(program)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(b"nonsense")
    for path in (tmp_path / "model.pt2", tmp_path / "missing.pt2"):
        with pytest.raises(InvalidIR, match="PyTorch cannot read it") as caught:
            InferenceSession(path)
        assert "\n" not in str(caught.value)


# The command line


def aicf_command(*arguments: object, code: str = "") -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        f"{code}\nfrom aicf.tools.aicf_cli import main\nraise SystemExit(main())",
    ]
    return subprocess.run(
        [*command, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command says, in this process: another one takes four seconds to import PyTorch."""
    status, said = main([*map(str, arguments)]), capsys.readouterr()
    assert status == 0, said.err
    return said.out


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "scores.pt2"
    torch.export.save(exported(), path)
    return path


def names(file: Path) -> tuple[str, str]:
    with InferenceSession(file) as session:
        first, second = session.input_info[0].shape
        return str(first), str(second)


def test_run_compile_explain_and_bench_on_the_command_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "tokens.npy", tokens(3, 4))
    np.save(tmp_path / "scale.npy", SCALE)
    inputs = [f"--input={name}={tmp_path}/{name}.npy" for name in ("tokens", "scale")]
    done = aicf_command("run", file, *inputs, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    found = {name: np.load(tmp_path / f"{name}.npy") for name in ("scores", "prob")}
    assert_scores(found, made(), tokens(3, 4))
    dims = "--dims={}=3,{}=4".format(*names(file))
    artifact = tmp_path / "scores.aicf"
    answer_of(capsys, "compile", file, "-o", artifact, dims)
    assert_scores(aicf.load(artifact).run({"tokens": tokens(3, 4), "scale": SCALE}), made(), tokens(3, 4))
    assert "head.linear" in answer_of(capsys, "explain", artifact)
    for model, given in ((file, [dims]), (artifact, [])):
        assert "@scores@" in answer_of(capsys, "bench", model, "--repeats", "2", *given)


def test_tune_on_the_command_line(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dims = "--dims={}=2,{}=3".format(*names(file))
    answer_of(capsys, "tune", file, "--prepare", tmp_path / "cases", dims, "--variants", "1")
    assert any((tmp_path / "cases").iterdir())


def test_weights_that_are_made_up_are_refused(file: Path) -> None:
    done = aicf_command("bench", file, "--random-weights")
    assert done.returncode != 0
    assert "an exported program brings its own weights" in done.stderr


MISSING = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "sympy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


@pytest.mark.parametrize("command", ["compile", "bench", "run"])
def test_without_pytorch_a_file_is_one_line_of_error(file: Path, tmp_path: Path, command: str) -> None:
    more = ["-o", tmp_path / "scores.aicf"] if command == "compile" else []
    done = aicf_command(command, file, *more, code=MISSING)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "programs of torch.export are read by PyTorch, which is missing: pip install" in line
    assert "[torch]'" in line


def test_without_pytorch_a_session_says_so(file: Path) -> None:
    code = f"{MISSING}\nimport aicf\ntry:\n    aicf.InferenceSession({str(file)!r})\n"
    code += "except aicf.AicfError as error:\n    print(type(error).__name__, error)\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(BackendUnavailable.__name__), done.stderr
    assert "\n" not in done.stdout.strip()


def test_an_artifact_of_a_session_is_another_kind_of_file(file: Path) -> None:
    with pytest.raises(ArtifactError):
        aicf.load(file)
