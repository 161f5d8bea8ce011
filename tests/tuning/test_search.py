"""`aicf tune --search` on a device whose times a test knows: what it finds, in which order, and in how much time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path

import pytest
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.native import NativeCode
from aicf.compilation.compiler import compile
from aicf.compilation.record import Options
from aicf.dialects.emit_types import TargetAttr
from aicf.errors import AicfError, CaptureError
from aicf.policies.tuning_table import Header, TuningTable
from aicf.tools.aicf_cli import main
from aicf.tuning import tune
from aicf.tuning.candidates import Candidate
from aicf.tuning.cases import Case
from aicf.tuning.contest import LEAST, Contest, contest
from aicf.tuning.growing_table import GrowingTable
from aicf.tuning.measure import Samples
from aicf.tuning.plan import plan
from aicf.tuning.search import RESERVE, Search
from aicf.tuning.searched_works import SearchedWork, works_of
from aicf.tuning.trials import Trials
from aicf.tuning.work_search import Outcome, Standing

from .programs import TARGET, TWO_PRODUCTS, FakeDevice, TiledKernel, fresh_kernels, register, silent

__all__ = ["fresh_kernels"]

TILES, STAGES, SPLITS = (32, 64, 128, 256), (2, 3, 4, 5), (1, 2, 4, 8)
OPTIMUM: Mapping[str, object] = {"tile": 128, "stages": 4, "split": 2}
ONLY = '{"forbid": ["cpu.gemm_avx2", "cpu.gemm_portable"]}'
HEADER = Header("cpu", "x86-64-v3", 1, "a fake device", "1.0", {}, {})


@dataclass(frozen=True)
class GridKernel(TiledKernel):
    """A kernel of products with 64 variants, which predicts that the first one is best."""

    id: str = "cpu.grid"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return prod(work.results[0].shape) / 1e3

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        return [
            {"tile": whole(tile), "stages": whole(stages), "split": whole(split)}
            for tile, stages, split in product(TILES, STAGES, SPLITS)
        ]


def whole(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def far(spec: Mapping[str, object]) -> float:
    """Steps from the optimum."""
    axes = {"tile": TILES, "stages": STAGES, "split": SPLITS}
    return sum(abs(axis.index(spec[name]) - axis.index(OPTIMUM[name])) for name, axis in axes.items())  # pyright: ignore[reportArgumentType]


@dataclass
class Clock:
    """Time goes on only where something is measured."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class TimedDevice(FakeDevice):
    """Each measurement takes a second."""

    clock: Clock = field(default_factory=Clock)
    seen: list[tuple[str, Mapping[str, object]]] = field(
        default_factory=list[tuple[str, Mapping[str, object]]]
    )

    def time(self, case: Case, native: NativeCode) -> Samples:
        self.clock.now += 1.0
        self.seen.append((case.group, case.spec))
        return super().time(case, native)


@dataclass
class FakeCompiler:
    """Makes cases without code."""

    candidates: Sequence[Candidate]
    wished: list[list[int]] = field(default_factory=list[list[int]])
    broken: Callable[[Mapping[str, object]], bool] = lambda spec: False

    def next_case(self, numbers: Iterable[int], alone: bool) -> Case | AicfError:
        first, *rest = numbers
        self.wished.append(rest)
        made = self.candidates[first]
        if self.broken(made.spec):
            return CaptureError("it has too many registers")
        about = (made.group.id.data, made.work, made.kernel.id, made.kernel.version, made.spec)
        return Case(*about, (), False, "e", (), NativeCode(b"", ()))


@dataclass
class Setup:
    """A search of the two products, as far as it got."""

    times: Callable[[str, Mapping[str, object]], float]
    older: TuningTable | None = None
    broken: Callable[[Mapping[str, object]], bool] = lambda spec: False

    def __post_init__(self) -> None:
        self.device = TimedDevice(self.times)
        self.table = GrowingTable(HEADER, self.older)
        self.reports: list[tuple[Standing, float]] = []
        found = plan(TWO_PRODUCTS, Options(TARGET, ONLY, "", 1), None, silent)
        self.compiler = FakeCompiler(found.candidates, broken=self.broken)
        self.works = works_of(found)

    def run(self, seconds: float) -> list[Outcome]:
        tried = [(work, self._trials(work)) for work in self.works]
        report = lambda standing, left: self.reports.append((standing, left))  # noqa: E731
        return Search(tried, self.device, seconds, report, self.device.clock).run()

    def _trials(self, work: SearchedWork) -> Trials:
        return Trials(work.candidates, work.first, self.compiler, self.device, self.table, "cold")  # pyright: ignore[reportArgumentType]

    def specs_of(self, group: str) -> list[Mapping[str, object]]:
        return [spec for name, spec in self.device.seen if name == group]


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, GridKernel())


@pytest.mark.usefixtures("grid")
def test_the_optimum_is_found_without_trying_all():
    setup = Setup(lambda kernel, spec: 10.0 + far(spec))
    outcomes = setup.run(10_000)
    assert [outcome.standing.name for outcome in outcomes] == ["first", "second"]
    for outcome in outcomes:
        standing = outcome.standing
        assert outcome.is_done and outcome.is_better and standing.variants == 64
        assert standing.best == "cpu.grid tile=128 stages=4 split=2" and standing.tried < 40
        assert (standing.untuned_us, standing.best_us) == (15.0, 10.0)
        assert outcome.gain == pytest.approx(1.5) and outcome.noise == LEAST
    rows = [work.rows[0] for work in setup.table.table.works]
    assert [row.spec for row in rows] == [OPTIMUM, OPTIMUM]


@pytest.mark.usefixtures("grid")
def test_the_untuned_choice_comes_first_and_the_work_that_takes_longest():
    setup = Setup(lambda kernel, spec: 10.0 + far(spec))
    assert [work.us for work in setup.works] == pytest.approx([16 * 24 / 1e3, 16 * 8 / 1e3])
    setup.run(10_000)
    assert setup.device.seen[0] == ("first", {"tile": 32, "stages": 2, "split": 1})
    groups = [group for group, _ in setup.device.seen]
    assert groups == sorted(groups)
    assert setup.compiler.wished[0] == [1, 4, 16, 64, 65, 68, 80], "what comes next is compiled meanwhile"


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("seconds", [1, 7, 20, 40, 80])
def test_the_budget_holds_and_is_split_by_the_share(seconds: int):
    """Three quarters are for the first product; what has begun is finished: a step, or a comparison of three rounds."""
    setup = Setup(lambda kernel, spec: 10.0 + far(spec))
    outcomes = setup.run(seconds)
    assert setup.device.clock.now <= seconds + 7
    assert all(0 <= left <= seconds for _, left in setup.reports)
    if seconds == 80:
        first, second = (len(setup.specs_of(name)) for name in ("first", "second"))
        assert 60 - RESERVE * 7 <= first <= 60 + 7 and 0 < second < first
    assert not all(outcome.is_done for outcome in outcomes)


@pytest.mark.usefixtures("grid")
def test_a_search_goes_on_from_its_table_and_ends_where_it_would_have():
    def times(kernel: str, spec: Mapping[str, object]) -> float:
        return 10.0 + far(spec)

    whole = Setup(times)
    whole.run(10_000)
    older: TuningTable | None = None
    seen: list[Mapping[str, object]] = []
    for _ in range(40):
        setup = Setup(times, older)
        outcomes = setup.run(15)
        older = setup.table.table
        seen += setup.specs_of("first")
        if all(outcome.is_done for outcome in outcomes):
            break
    assert all(outcome.is_done for outcome in outcomes)
    assert [o.standing.best for o in outcomes] == ["cpu.grid tile=128 stages=4 split=2"] * 2
    known = [{str(row.spec) for row in work.rows} for work in older.works]
    assert known == [{str(row.spec) for row in work.rows} for work in whole.table.table.works]
    again = Setup(times, older)
    assert all(outcome.is_better for outcome in again.run(10_000))
    assert {str(spec) for spec in again.specs_of("first")} == {
        str(OPTIMUM),
        str({"tile": 32, "stages": 2, "split": 1}),
    }, "nothing is left but to compare the best with the untuned choice"


@pytest.mark.usefixtures("grid")
def test_what_fails_to_compile_or_to_run_is_in_the_table_and_the_search_goes_around_it():
    def times(kernel: str, spec: Mapping[str, object]) -> float:
        if spec["stages"] == 5:
            raise CaptureError("it touched foreign memory")
        return 10.0 + far(spec)

    setup = Setup(times, broken=lambda spec: spec["tile"] == 256)
    outcomes = setup.run(10_000)
    assert [o.standing.best for o in outcomes] == ["cpu.grid tile=128 stages=4 split=2"] * 2
    failed = {failure.reason for work in setup.table.table.works for failure in work.failed}
    assert failed == {"it touched foreign memory", "it has too many registers"}
    assert all(o.standing.failed > 0 for o in outcomes)


@pytest.mark.usefixtures("grid")
def test_a_difference_within_the_noise_is_none():
    """Variants of equal speed whose single times differ by chance: the untuned one stays the best, or is no worse."""
    chance = iter(range(10**6))
    setup = Setup(lambda kernel, spec: 100.0 + (next(chance) * 7919 % 13) / 4)
    for outcome in setup.run(10_000):
        assert outcome.gain is not None and not outcome.is_better
        assert abs(outcome.gain - 1) <= outcome.noise


@pytest.mark.usefixtures("grid")
def test_a_lost_device_ends_the_search():
    setup = Setup(lambda kernel, spec: 1.0)

    def times(kernel: str, spec: Mapping[str, object]) -> float:
        if len(setup.device.seen) == 3:
            setup.device.lost = True
            raise CaptureError("a kernel touched foreign memory")
        return 10.0

    setup.device.times = times
    setup.run(10_000)
    assert len(setup.device.seen) == 3


@pytest.mark.usefixtures("grid")
def test_the_table_says_what_the_search_found_although_the_clock_changed():
    """After the first times the device is half as fast: what was measured early looks better than it is."""

    def times(kernel: str, spec: Mapping[str, object]) -> float:
        return (10.0 + far(spec)) * (1.0 if len(setup.device.seen) <= 3 else 2.0)

    setup = Setup(times)
    for outcome in setup.run(10_000):
        assert outcome.is_better and outcome.standing.best == "cpu.grid tile=128 stages=4 split=2"
    assert [work.rows[0].spec for work in setup.table.table.works] == [OPTIMUM, OPTIMUM]


# Contests


def samples(*us: float) -> Samples:
    return Samples(us, [value / 2 for value in us])


def test_a_contest_is_won_by_more_than_the_noise():
    rounds = [(samples(11.0), samples(10.0)), (samples(12.0), samples(10.0)), (samples(12.1), samples(11.0))]
    found = contest(rounds, "cold")
    assert found.ratios == pytest.approx((1.1, 1.2, 1.1)) and found.gain == pytest.approx(1.1)
    assert found.noise == pytest.approx(0.05) and found.is_won
    assert list(found.champion.cold) == [11.0, 12.0, 12.1]
    assert not Contest((1.1, 1.4, 1.02), samples(1), samples(1)).is_won
    assert not Contest((1.005, 1.005, 1.005), samples(1), samples(1)).is_won
    assert found.reversed().ratios == pytest.approx((1 / 1.1, 1 / 1.2, 1 / 1.1))


def test_a_challenger_that_loses_at_once_has_one_round():
    rounds = [(samples(10.0), samples(10.5)), (samples(10.0), samples(5.0))]
    found = contest(iter(rounds), "cold")
    assert len(found.ratios) == 1 and not found.is_won and not found.is_whole
    assert contest(iter(rounds), "cold", to_the_end=True).is_whole


# The command


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("two.mlir").write_text(TWO_PRODUCTS)
    return tmp_path


SEARCH = ["tune", "two.mlir", "-o", "t.json", "--target", TARGET, "--search"]


def test_the_command_finds_a_tile_that_nobody_predicted(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """With the kernels of this backend, on a device that likes one row and two vectors best."""
    monkeypatch.undo()
    monkeypatch.chdir(model)

    def times(kernel: str, spec: Mapping[str, object]) -> float:
        rows, vectors = spec.get("tile_rows", 1), spec.get("tile_vectors", 2)
        assert isinstance(rows, int) and isinstance(vectors, int)
        return (1 if kernel == "cpu.gemm_avx2" else 50) + rows + abs(vectors - 2)

    monkeypatch.setattr(tune, "open_device", lambda setting: FakeDevice(times))
    assert main([*SEARCH, "--time", "100"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["work", "groups", "untuned", "us", "tuned", "us", "gain", "tried", "best"]
    assert "2 of 2 pieces of work are faster by more than the noise" in out
    table = TuningTable.load(Path("t.json"))
    least = [work.rows[0].spec["tile_rows"] for work in table.works]
    offered = [min(int(str(row.spec["tile_rows"])) for row in work.rows) for work in table.works]
    assert least == offered and all(work.rows[0].kernel == "cpu.gemm_avx2" for work in table.works)
    exe = compile(TWO_PRODUCTS, target=TARGET, tuning=table)
    launches = {launch.name: launch.record for launch in exe.plan.programs[0].launches}
    by_group = {row.spec["tile_rows"] for work in table.works for row in work.rows[:1]}
    assert {launches[name]["tile_rows"] for name in ("first", "second")} == by_group


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--time", "0"], "time: a search cannot take 0.0 seconds; give more than 0"),
        (["--time", "-3"], "time: a search cannot take -3.0 seconds; give more than 0"),
        (["--time", "nan"], "time: a search cannot take nan seconds; give more than 0"),
        (["-o", "no/t.json"], "cannot write the tuning table: No such file or directory"),
        (["-o", "two.mlir"], "would take the place of what it is made of"),
        (["-o", "cut.json"], "nothing was changed: give -o another file, or --replace to begin anew"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    options: list[str],
    message: str,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    Path("cut.json").write_text('{"format": "aicf.tun')
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    assert main([*SEARCH, *options]) == 1
    err = capsys.readouterr().err
    assert message in err and err.strip().count("\n") == 0
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["m.mlir", "-o", "t", "--time", "5"],
        ["m.mlir", "--prepare", "d", "--search"],
        ["--measure", "d", "-o", "t", "--search"],
    ],
)
def test_options_that_a_search_contradicts_are_a_usage_error(arguments: list[str]):
    assert main(["tune", *arguments]) == 2


def test_in_python_the_outcomes_come_back(model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tune, "open_device", lambda setting: FakeDevice(lambda kernel, spec: 1.0))
    tuned = tune.tune("two.mlir", "t.json", TARGET, search=True, time=30)
    assert [outcome.standing.name for outcome in tuned.outcomes] == ["first", "second"]
    assert tuned.table == TuningTable.load(Path("t.json")) and tuned.device == "a fake device"
    assert tuned.failures == ()
