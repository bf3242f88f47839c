"""keepset select on large pools: memory, progress, breaking off and going on, planning, parts on several machines."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import keepset
from keepset import cli, distributed
from keepset.commands import progress, unfinished
from keepset.commands.arguments import memory_size, named_shapes, named_shards
from keepset.commands.chosen import write_chosen
from keepset.selection import planning
from keepset.selection.inputs import as_tensor, read_view

RNG = np.random.default_rng(1)
A = RNG.normal(size=(120, 8)).astype(np.float32)
B = RNG.normal(size=(120, 5)).astype(np.float32)
COVERS = ["mers", "maxherding", "mers-probcover", "probcover"]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def call(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Runs `keepset select`; gives its exit code and what it said."""
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", B)
    np.save(tmp_path / "y.npy", np.arange(120) % 4)
    np.savez(tmp_path / "both.npz", a=A, b=B)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keepset", "select", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets the choice be broken off after so many picks of one call; None: no more."""
    add = unfinished.Unfinished.add

    def arrange(picks: int | None, sign: int = signal.SIGINT) -> None:
        def stopping(self: unfinished.Unfinished, index: int, gain: float) -> None:
            add(self, index, gain)
            if len(self.picks) - self.earlier == picks:
                os.kill(os.getpid(), sign)
                time.sleep(1)  # the signal comes in here

        monkeypatch.setattr(unfinished.Unfinished, "add", stopping)

    return arrange


# ---------------------------------------------------------------- breaking off and going on


@pytest.mark.parametrize("ending", ["npy", "csv", "json"])
@pytest.mark.parametrize("method", COVERS)
def test_resume__the_file_is_that_of_a_call_without_a_break(
    call: Any, stop_after: Any, method: str, ending: str
) -> None:
    arguments = ["a.npy", "b.npy", "--budget", "90", "--method", method]
    assert call(*arguments, "-o", f"whole.{ending}")[0] == 0
    for picks, resume in [(7, []), (20, ["--resume"])]:
        stop_after(picks)
        code, out, err = call(*arguments, "-o", f"keep.{ending}", *resume)
        assert (code, out) == (130, "")
        assert "--resume goes on from there" in err
        assert Path(f"keep.{ending}.partial.json").is_file()
    assert "after 27 of 90 picks" in err
    stop_after(None)
    code, out, err = call(*arguments, "-o", f"keep.{ending}", "--resume")
    assert (code, out) == (0, f"90 indices written to keep.{ending}\n")
    assert err.startswith(f"going on from 27 of 90 picks in keep.{ending}\n")
    assert Path(f"keep.{ending}").read_bytes() == Path(f"whole.{ending}").read_bytes()
    assert not Path(f"keep.{ending}.partial.json").exists()


@pytest.mark.parametrize(
    "more",
    [
        ["--search", "stochastic", "--seed", "5"],
        ["--search", "stochastic", "--epsilon", "0.3"],
        ["--memory", "1000"],
        ["--start", "s.npy"],
        ["--point-weights", "density"],
        ["--fusion", "max-then-sum", "--bandwidth", "knn"],
        ["--method", "mers-probcover", "--uncovered", "shared"],
    ],
)
def test_resume__with_options_too(call: Any, stop_after: Any, more: list[str]) -> None:
    np.save("s.npy", np.array([3, 50]))
    np.save("a.npy", A.astype(np.float64))  # without the matrix, float32 rounds ties apart
    arguments = ["a.npy", "b.npy", "--budget", "30", *more]
    assert call(*arguments, "-o", "whole.json")[0] == 0
    stop_after(11)
    assert call(*arguments, "-o", "keep.json")[0] == 130
    stop_after(None)
    assert call(*arguments, "-o", "keep.json", "--resume")[0] == 0
    kept, whole = (json.loads(Path(name).read_text(encoding="utf-8")) for name in ("keep.json", "whole.json"))
    assert [record["index"] for record in kept] == [record["index"] for record in whole]
    np.testing.assert_allclose([r["gain"] for r in kept], [r["gain"] for r in whole], rtol=1e-5, atol=1e-9)


def test_broken_off__the_prefix_is_usable(call: Any, stop_after: Any) -> None:
    stop_after(12)
    code, _, err = call("a.npy", "b.npy", "--budget", "40", "-o", "keep.npy")
    assert code == 130
    assert err == (
        "broken off after 12 of 40 picks, which keep.npy holds; the same command with --resume goes on from there\n"
    )
    assert np.load("keep.npy").tolist() == list(keepset.select([A, B], 40))[:12]


def test_terminated__exit_code_143(call: Any, stop_after: Any) -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop_after(3, signal.SIGTERM)
    assert call("a.npy", "--budget", "40", "-o", "keep.csv")[0] == 143
    assert len(Path("keep.csv").read_text(encoding="utf-8").splitlines()) == 4
    assert signal.getsignal(signal.SIGTERM) == before


def test_broken_off_without_a_file__says_so(call: Any, stop_after: Any) -> None:
    stop_after(3)
    code, out, err = call("a.npy", "--budget", "40")
    assert (code, out) == (130, "")
    assert err == "broken off after 3 of 40 picks; with -o FILE they would have been kept\n"


@pytest.mark.parametrize(("resume", "message"), [([], "before the first pick; "), (["--resume"], "after 12 of 40 ")])
def test_broken_off_at_once__the_file_is_as_it_was(
    call: Any, stop_after: Any, monkeypatch: pytest.MonkeyPatch, resume: list[str], message: str
) -> None:
    stop_after(12)
    call("a.npy", "--budget", "40", "-o", "keep.npy")
    before = Path("keep.npy").read_bytes()

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("keepset.selection.select", stop)
    code, _, err = call("a.npy", "--budget", "40", "-o", "keep.npy", *resume)
    assert code == 130
    assert f"broken off {message}" in err
    assert Path("keep.npy").read_bytes() == before


def test_broken_off_by_class__nothing_is_written(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.LateBar, "update", stop)
    code, out, err = call("a.npy", "--labels", "y.npy", "--budget", "3", "-o", "keep.npy")
    assert (code, out, err.count("\n")) == (130, "", 1)
    assert "nothing of it is kept" in err
    assert not Path("keep.npy").exists()


def test_killed__the_file_is_as_it_was_last_written(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pick is written here; what breaks the work, and writes nothing, is no interrupt."""
    monkeypatch.setattr(unfinished, "EVERY", 0)
    numbers = iter(range(100))

    def breaking(output: Path, chosen: Any) -> None:
        write_chosen(output, chosen)
        if next(numbers) == 9:  # the file is written, what lies beside it not yet
            raise MemoryError("killed")

    arguments = ["a.npy", "b.npy", "--budget", "30", "-o", "keep.npy"]
    with monkeypatch.context() as patch:
        patch.setattr(unfinished, "write_chosen", breaking)
        assert call(*arguments)[0] == 2
    assert len(np.load("keep.npy")) == 10
    code, _, err = call(*arguments, "--resume")
    assert (code, err) == (0, "going on from 9 of 30 picks in keep.npy\n")
    assert np.load("keep.npy").tolist() == list(keepset.select([A, B], 30))


def test_resume__without_a_file_starts_anew(call: Any) -> None:
    code, out, err = call("a.npy", "--budget", "5", "-o", "keep.npy", "--resume")
    assert (code, out) == (0, "5 indices written to keep.npy\n")
    assert err == "keep.npy is not there yet: starting anew\n"


def test_resume__a_finished_file_stays(call: Any) -> None:
    call("a.npy", "--budget", "5", "-o", "keep.csv")
    before = Path("keep.csv").stat().st_mtime_ns
    code, out, _ = call("a.npy", "--budget", "5", "-o", "keep.csv", "--resume")
    unknown = "of a finished file it is not known how it was chosen"
    assert (code, out) == (0, f"keep.csv is finished, it holds all 5 picks: nothing is left to do; {unknown}\n")
    assert Path("keep.csv").stat().st_mtime_ns == before


def test_resume__all_picked_but_not_tidied_up(call: Any, stop_after: Any) -> None:
    stop_after(5)
    assert call("a.npy", "--budget", "5", "-o", "keep.csv")[0] == 130
    stop_after(None)
    out = call("a.npy", "--budget", "5", "-o", "keep.csv", "--resume")[1]
    assert out.endswith("nothing is left to do\n")
    assert not Path("keep.csv.partial.json").exists()


def test_a_new_choice__replaces_an_unfinished_one_with_a_note(call: Any, stop_after: Any) -> None:
    stop_after(5)
    call("a.npy", "--budget", "50", "-o", "keep.npy")
    stop_after(None)
    code, _, err = call("b.npy", "--budget", "4", "-o", "keep.npy")
    assert code == 0
    assert err == "keep.npy holds an unfinished choice, which this one replaces; --resume would go on from it\n"
    assert len(np.load("keep.npy")) == 4
    assert not Path("keep.npy.partial.json").exists()


@pytest.mark.parametrize(
    ("picks", "message"),
    [
        ([3, 120], "keep.npy holds another choice: index 120 is not in 0..119"),
        ([3, 4, 3], "keep.npy holds another choice: index 3 is there twice"),
        (list(range(21)), "keep.npy holds another choice: it has 21 picks, --budget is 20"),
        ([0.5, 1.0], "keep.npy holds no choice that keepset select wrote (an array of float64, shape (2,))"),
        ([3, 4], "keep.npy has 2 of 20 picks, but keep.npy.partial.json, which says what choice it is part of"),
    ],
)
def test_resume__files_of_other_choices_are_refused(call: Any, picks: list[Any], message: str) -> None:
    np.save("keep.npy", np.array(picks))
    code, out, err = call("a.npy", "--budget", "20", "-o", "keep.npy", "--resume")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def archive() -> bytes:
    np.savez("archive.npz", a=A)
    return Path("archive.npz").read_bytes()


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        ("npy", lambda: b""),
        ("npy", archive),
        ("npy", lambda: b"PK\x03\x04 and no more"),
        ("csv", lambda: b'class,rank,index,gain\n,1,"' + b"1" * 200_000 + b'",0.5\n'),
        ("json", lambda: b"[" * 100_000),
        ("json", lambda: b'[{"class": null, "rank": 1, "index": 1e400, "gain": 0.5}]'),
    ],
    ids=["empty", "archive", "cut archive", "long field", "deep", "infinite"],
)
def test_resume__damaged_files_are_named(call: Any, ending: str, content: Callable[[], bytes]) -> None:
    Path(f"keep.{ending}").write_bytes(content())
    code, out, err = call("a.npy", "--budget", "20", "-o", f"keep.{ending}", "--resume")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"keepset: keep.{ending} holds no choice that keepset select wrote (")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("random numbers", "AAAA"),
        ("random numbers", "A" * 6744),
        ("picks", -1),
        ("picks", float("inf")),
        ("picks", 2.5),
    ],
)
def test_resume__a_damaged_side_file_is_named(call: Any, stop_after: Any, name: str, value: Any) -> None:
    stop_after(5)
    call("a.npy", "--budget", "20", "-o", "keep.npy")
    side = Path("keep.npy.partial.json")
    side.write_text(json.dumps({**json.loads(side.read_text(encoding="utf-8")), name: value}), encoding="utf-8")
    code, out, err = call("a.npy", "--budget", "20", "-o", "keep.npy", "--resume")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("keepset: keep.npy.partial.json is damaged (")


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_resume__a_choice_by_class_is_refused(call: Any, ending: str) -> None:
    call("a.npy", "--labels", "y.npy", "--budget", "2", "-o", f"keep.{ending}")
    code, _, err = call("a.npy", "--budget", "20", "-o", f"keep.{ending}", "--resume")
    assert (code, err.count("\n")) == (2, 1)
    assert "it was made by class" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.npy", "b.npy", "--budget", "50"], "--budget was 40, is 50"),
        (["a.npy", "b.npy", "--budget", "40", "--seed", "2"], "--seed was 0, is 2"),
        (["a.npy", "b.npy", "--budget", "40", "--kernel", "laplace"], "--kernel was not given, is laplace"),
        (["a.npy", "b.npy", "--budget", "40", "--method", "mers-probcover"], "--method was mers, is mers-probcover"),
        (["a.npy", "--budget", "40"], "shape of VIEW 2 was 120 × 5, is not given"),
        (["a.npy", "c.npy", "--budget", "40"], "c.npy; rows of VIEW 2 was"),
        (["a.npy", "b.npy", "--budget", "40", "--point-weights", "w.npy"], "--point-weights was not given, is w.npy"),
    ],
)
def test_resume__names_what_differs(call: Any, stop_after: Any, arguments: list[str], message: str) -> None:
    np.save("c.npy", B[::-1])
    np.save("w.npy", np.ones(120))
    stop_after(5)
    call("a.npy", "b.npy", "--budget", "40", "-o", "keep.npy")
    before = Path("keep.npy").read_bytes()
    code, _, err = call(*arguments, "-o", "keep.npy", "--resume")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("keepset: keep.npy is part of another choice: ")
    assert message in err
    assert Path("keep.npy").read_bytes() == before


def test_resume__other_memory_is_the_same_choice(call: Any, stop_after: Any) -> None:
    np.save("a.npy", A.astype(np.float64))
    stop_after(5)
    call("a.npy", "b.npy", "--budget", "40", "-o", "keep.npy")
    stop_after(None)
    assert call("a.npy", "b.npy", "--budget", "40", "--memory", "5kB", "-o", "keep.npy", "--resume")[0] == 0
    assert np.load("keep.npy").tolist() == list(keepset.select([A.astype(np.float64), B], 40))


def test_resume__new_content_under_the_old_name_is_noticed(call: Any, stop_after: Any) -> None:
    stop_after(5)
    call("a.npy", "--budget", "40", "-o", "keep.npy")
    np.save("a.npy", A + 1)
    assert "another choice: rows of VIEW 1 was" in call("a.npy", "--budget", "40", "-o", "keep.npy", "--resume")[2]


# ---------------------------------------------------------------- flags


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (None, None),
        ("auto", "auto"),
        ("4000000000", 4_000_000_000),
        ("4GB", 4_000_000_000),
        ("500MB", 500_000_000),
        ("1.5 gb", 1_500_000_000),
        ("2k", 2000),
        ("3TB", 3 * 10**12),
    ],
)
def test_memory__bytes_and_units(text: str | None, size: Any) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "lots"], "--memory must be auto or a number of bytes, such as 4GB or 500MB, got 'lots'"),
        (["--memory", "0"], "--memory must be auto or a number of bytes"),
        (["--memory", "-3GB"], "--memory must be auto or a number of bytes"),
        (["--memory", "9" * 400], "--memory must be auto or a number of bytes"),
        (["--search", "stochastc"], "unknown search 'stochastc'; did you mean 'stochastic'?"),
        (["--epsilon", "0.2"], "epsilon=0.2 is for search='stochastic'"),
        (["--search", "stochastic", "--epsilon", "2"], "epsilon must be above 0 and below 1, got 2.0"),
        (["--search", "stochastic", "--method", "probcover"], "search='stochastic' is for soft cover"),
        (["--memory", "1GB", "--method", "random"], "option 'memory' is not for random"),
        (["--resume"], "--resume goes on from a file; name it with -o"),
        (["--resume", "-o", "k.npy", "--labels", "y.npy"], "leave out --labels or --resume"),
        (["--plan", "--labels", "y.npy"], "--plan goes with a choice over all points"),
        (["--engine", "slurm"], "unknown --engine 'slurm'; choose from local, ray"),
        (["--parts", "3"], "--parts goes with --engine ray"),
        (["--address", "auto"], "--address goes with --engine ray"),
        (["--engine", "ray", "--labels", "y.npy"], "leave out --labels or --engine ray"),
        (["--engine", "ray", "--start", "y.npy"], "--start does not go with --engine ray"),
        (["--engine", "ray", "--resume", "-o", "k.npy"], "--resume does not go with --engine ray"),
        (["*.npy"], "*.npy stands for several files, which --engine ray reads; name one file a view"),
        (["shards", "--engine", "ray"], "shards finds no .npy or .parquet file"),
    ],
)
def test_bad_flags__one_line_and_exit_code_2(call: Any, arguments: list[str], message: str) -> None:
    Path("shards").mkdir()
    before = sorted(Path().iterdir())
    code, out, err = call("a.npy", "--budget", "20", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--memory", "1kB"], {"memory": 1000}),
        (["--memory", "auto"], {"memory": "auto"}),
        (["--search", "stochastic", "--seed", "4"], {"search": "stochastic", "generator": 4}),
        (["--search", "stochastic", "--epsilon", "0.5"], {"search": "stochastic", "epsilon": 0.5}),
    ],
)
def test_flags__reach_the_library(call: Any, arguments: list[str], options: dict[str, Any]) -> None:
    assert call("a.npy", "b.npy", "--budget", "9", *arguments, "-o", "keep.npy")[0] == 0
    assert np.load("keep.npy").tolist() == list(keepset.select([A, B], 9, **options))


# ---------------------------------------------------------------- memory


def test_memory_map__is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", A)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert read_view("a", mapped).data_ptr() == mapped.ctypes.data
    fixed = A.copy()
    fixed.flags.writeable = False
    assert as_tensor(fixed).data_ptr() != fixed.ctypes.data


@LINUX
def test_select__a_file_is_never_there_twice(tmp_path: Path) -> None:
    """The peak of a process: the pages of the file are part of it, a copy would come on top."""
    size = 64_000_000
    np.save(tmp_path / "small.npy", np.ones((10, 250), np.float32))
    np.save(tmp_path / "large.npy", np.ones((size // 1000, 250), np.float32))
    code = (
        "import re, sys; from keepset import cli\n"
        "try: cli.main()\n"
        "except SystemExit: print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    peaks = []
    for name in ("small", "large"):
        command = ["select", str(tmp_path / f"{name}.npy"), "--budget", "5", "--method", "random", "-o", "keep.npy"]
        done = subprocess.run(
            [sys.executable, "-c", code, *command], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        peaks.append(1024 * int(done.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 1.4 * size


def test_shapes__are_read_from_the_heads_of_files(call: Any) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(3, 2), "y": torch.zeros(4, 5)}, "t.safetensors")
    assert named_shapes(["a.npy", "both.npz:b", "t.safetensors:y"]) == {"a": (120, 8), "b": (120, 5), "y": (4, 5)}
    for spec, message in [
        ("both.npz", "holds 2 arrays"),
        ("none.npz", "no such file"),
        ("t.safetensors:z", "no array"),
    ]:
        with pytest.raises(ValueError, match=message):
            named_shapes([spec])


# ---------------------------------------------------------------- progress


def test_short_work__shows_nothing(call: Any) -> None:
    assert call("a.npy", "--budget", "5", "-o", "keep.npy")[2] == ""
    assert call("a.npy", "--labels", "y.npy", "--budget", "5", "-o", "keep.npy")[2] == ""


def test_log__picks_gain_coverage_and_time_left(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINES", 0)
    lines = call("a.npy", "--budget", "5", "-o", "keep.npy")[2].splitlines()
    chosen = keepset.select(A, 5)
    assert len(lines) == 5
    gain, coverage = float(chosen.gains[2]), float(chosen.gains[:3].sum())
    assert lines[2] == f"choosing: 3/5 picks, gain {gain:.2g}, coverage {coverage:.4f}, 0 s left"


def test_log__classes(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINES", 0)
    lines = call("a.npy", "--labels", "y.npy", "--budget", "0=2,1=0,2=50,3=1", "-o", "keep.npy")[2].splitlines()
    told = [line.removeprefix("choosing: ").partition(", 0 s")[0] for line in lines if "picks" in line]
    assert told[:2] == ["0/4 classes, 1/33 picks", "2/4 classes, 2/33 picks"]
    assert told[-2:] == ["3/4 classes, 32/33 picks", "4/4 classes, 33/33 picks"]


class Terminal:
    """An error stream that says it is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, True), (60.0, False)])
def test_terminal__a_bar_after_a_while(monkeypatch: pytest.MonkeyPatch, seconds: float, shown: bool) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "AFTER", seconds)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress.LateBar("choosing", 10) as bar:
        time.sleep(0.1)
        bar.update(4, "4/10 picks")
    assert ("4/10 picks" in terminal.text) is shown
    assert bool(terminal.text) is shown


def test_in_time__seconds_minutes_hours() -> None:
    assert [progress.in_time(seconds) for seconds in (7, 130, 9000)] == ["7 s", "2 min", "2.5 h"]


# ---------------------------------------------------------------- planning, and parts on several machines


def test_plan__prints_and_does_nothing_else(call: Any) -> None:
    before = sorted(Path().iterdir())
    code, out, err = call("a.npy", "b.npy", "--budget", "9", "--memory", "10kB", "-o", "keep.npy", "--plan")
    assert (code, err) == (0, "")
    assert "9 of 120 points" in out
    assert "streamed" in out
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((119, 8), "views must have equally many rows, but 'a' has 120 and 'other' has 119"),
        ((0, 8), "views['other'] must have at least one point"),
        ((120, 0), "views['other'] must have at least one column"),
        ((120,), "views['other'] must have shape (points, columns), got (120,)"),
    ],
)
def test_plan__refuses_the_views_that_the_choice_refuses(call: Any, shape: tuple[int, ...], message: str) -> None:
    np.savez("other.npz", np.zeros(shape, np.float32))
    for plan in ([], ["--plan"]):
        code, out, err = call("a.npy", "other.npz", "--budget", "9", *plan)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err


@pytest.mark.parametrize(
    "arguments",
    [
        "--kernel gauss",
        "--weights 1,2,3",
        "--bandwidth 0.1,0.2,0.3",
        "--neighbours 120",
        "--start far.npy",
        "--point-weights few.npy",
        "--uncertainty few.npy",
        "--epsilon 0.2",
        "--method probcover --search stochastic",
        "--method maxherding --view c",
    ],
)
def test_plan__refuses_the_options_that_the_choice_refuses_in_its_words(call: Any, arguments: str) -> None:
    np.save("far.npy", np.array([120]))
    np.save("few.npy", np.ones(5))
    chosen, told = (call("a.npy", "b.npy", "--budget", "9", *arguments.split(), *plan) for plan in ([], ["--plan"]))
    assert (told[0], told[1]) == (2, "")
    assert told[2].replace("--view", "view") == chosen[2]


def test_plan__looks_at_the_view_that_is_named(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def plan(*given: Any, **more: Any) -> str:
        told.append((given, more))
        return "the plan"

    monkeypatch.setattr(planning, "plan", plan)
    arguments = ["both.npz:a", "both.npz:b", "--budget", "9", "--plan"]
    assert call(*arguments, "--method", "maxherding", "--view", "b", "--kernel", "laplace")[1] == "the plan\n"
    call(*arguments, "--search", "stochastic", "--epsilon", "0.2")
    single = np.dtype(np.float32)
    more = {"search": "stochastic", "epsilon": 0.2, "device": "cpu", "dtype": [single, single]}
    assert told == [
        ((120, [5], 9), {"method": "maxherding", "device": "cpu", "dtype": [single]}),
        ((120, [8, 5], 9), {"method": "mers", **more}),
    ]


def test_plan__tells_what_float64_takes_from_the_heads_of_the_files(call: Any) -> None:
    double = A.astype(np.float64)
    np.savez("two.npz", a=double, b=B)
    np.savez("one.npz", double)
    save_file({"a": torch.tensor(double), "b": torch.tensor(B).half()}, "both.safetensors")
    np.save("d.npy", double)

    def told(*views: str) -> str:
        code, out, err = call(*views, "--budget", "9", "--plan")
        assert (code, err) == (0, "")
        return str(out)

    for view in ("d.npy", "two.npz:a", "one.npz", "both.safetensors:a"):
        assert "9 of 120 points on cpu in float64: dense" in told(view)
        assert "the matrix of all distances would be 115 kB" in told(view, "b.npy")
    for view in ("a.npy", "two.npz:b", "both.safetensors:b"):
        assert "9 of 120 points on cpu: dense" in told(view)
        assert "the matrix of all distances would be 57.6 kB" in told(view, "b.npy")
    assert "on cpu: dense" in told("d.npy", "b.npy", "--method", "maxherding", "--view", "b")
    assert "on cpu in float64" in told("d.npy", "b.npy", "--method", "maxherding")


def test_plan__refuses_whole_numbers_as_the_choice_does(call: Any) -> None:
    np.savez("whole.npz", np.ones((120, 3), int))
    chosen, told = (call("whole.npz", "--budget", "9", *plan) for plan in ([], ["--plan"]))
    assert told == chosen
    assert told[0] == 2


def test_shards__a_folder_or_a_pattern_stands_for_its_files(call: Any) -> None:
    for folder, names in {"one": ["x-2.npy", "x-1.npy", "notes.txt"], "two": ["0.npy"]}.items():
        Path(folder).mkdir()
        for name in names:
            (Path(folder) / name).touch()
    assert named_shards(["one", "a.npy"]) == {"one": ["one/x-1.npy", "one/x-2.npy"], "a": "a.npy"}
    assert named_shards(["one/x-*.npy", "two/*"]) == {"x": ["one/x-1.npy", "one/x-2.npy"], "two/*": ["two/0.npy"]}


def test_engine_ray__calls_the_distributed_choice(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def select_distributed(sources: Any, budget: int, *, on_part: Any, **options: Any) -> Any:
        told.append((sources, budget, options))
        on_part(1, 3)
        return keepset.select([A, B], budget)

    monkeypatch.setattr(distributed, "select_distributed", select_distributed)
    monkeypatch.setattr(progress, "LINES", 0)
    arguments = ["[ab].npy", "b.npy", "--budget", "9", "--kernel", "laplace", "--engine", "ray", "--parts", "3"]
    code, out, err = call(*arguments, "--address", "auto", "--seed", "2", "-o", "keep.npy")
    assert (code, out) == (0, "9 indices written to keep.npy\n")
    assert err == "choosing: 1/3 parts\n"
    sources = {"[ab].npy": ["a.npy", "b.npy"], "b": "b.npy"}
    more = {"method": "mers", "parts": 3, "address": "auto", "generator": 2, "kernel": "laplace"}
    assert told == [(sources, 9, more)]
