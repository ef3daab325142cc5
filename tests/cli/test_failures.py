# SPDX-License-Identifier: Apache-2.0
"""A run that fails: exit 1, one sentence, what was reached is kept, and --resume ends where it would have ended."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from idiolect.cli import app, failures, interruption
from idiolect.core.checks import RequestError


def contents(folder):
    """Every file that holds no clock: models, clients, spec."""
    timed = ("history.parquet", "summary.json", "machine.json", "report.html", "manifest.json", "done")
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in timed)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_divergence_names_round_and_client_and_keeps_the_last_good_state(idiolect, here):
    changes = ("--set", "data.path = 'doses.csv'", "--set", "training.rounds = 60")
    changes += ("--set", "methods.fedavg.step_size = 50.0")
    spec = (here / "spec.toml").read_text()
    (here / "one.toml").write_text(spec.replace("[methods.local]\n", ""))
    answer = idiolect("run", "one.toml", "--out", "out", *changes)
    assert (answer.code, answer.out) == (1, "")
    assert answer.error.startswith("Error: fedavg: Training diverged in round ")
    assert "on client 's" in answer.error
    assert "Use a smaller step size. The state after round " in answer.error
    assert "is kept in out/checkpoint/fedavg." in answer.error
    assert (here / "out/checkpoint/fedavg/latest.npz").is_file()
    assert not (here / "out/done").exists()
    again = idiolect("run", "out", "--resume")
    assert (again.code, again.error) == (1, answer.error)


def test_a_method_that_diverges_does_not_take_the_others_with_it(idiolect, here):
    changes = ("--set", "data.path = 'doses.csv'", "--set", "training.rounds = 60")
    changes += ("--set", "methods.fedavg.step_size = 50.0")
    answer = idiolect("run", "spec.toml", "--out", "out", *changes, "--format", "json")
    assert answer.code == 1
    assert "fedavg: Training diverged in round " in answer.error
    methods = {method["method"]: method for method in json.loads(answer.out)["methods"]}
    assert methods["local"]["diverged"] is None
    assert methods["local"]["mean"] is not None
    assert methods["fedavg"]["diverged"]["client"].startswith("s")
    assert methods["fedavg"]["mean"] is None
    assert (here / "out/done").is_file()
    number = methods["fedavg"]["diverged"]["round"]
    assert f"diverged, round {number} " in idiolect("report", "out").out


def test_a_diverged_seed_or_sweep_is_a_miss_with_its_table(idiolect, here):
    changes = ("--set", "data.path = 'doses.csv'", "--set", "training.rounds = 60", "--out", "out")
    axes = ("--over", "step_size = [0.1, 50.0]", "--set", "methods = {}")
    spec = (here / "spec.toml").read_text()
    (here / "one.toml").write_text(spec.replace("[methods.local]\n", ""))
    explored = idiolect("sweep", "one.toml", *changes, *axes, "--format", "json")
    assert explored.code == 0  # a sweep looks for the edge: finding it is no failure
    methods = {method["method"]: method for method in json.loads(explored.out)["methods"]}
    assert methods["fedavg[step_size=0.1]"]["diverged"] is None
    assert methods["fedavg[step_size=50.0]"]["diverged"]["round"] >= 1
    # the same two lanes as one method with two seeds: the run missed
    lost = idiolect(
        "run", "one.toml", *changes[:-1], "lost", "--set", "seeds = [0, 1]", "--set", "defaults.step_size = 50.0"
    )
    assert lost.code == 1
    assert "fedavg" in lost.out
    assert "Training diverged" in lost.error


def test_tuning_that_only_diverges_is_a_failed_run(idiolect):
    columns = ("--client", "site", "--target", "ill", "--methods", "fedavg", "--batch-size", "4")
    answer = idiolect("compare", "doses.csv", *columns, "--rounds", "60", "--step-sizes", "50,60", "--out", "out")
    assert answer.code == 1
    assert "diverged" in answer.out  # a row of the table
    assert "with every step size from 50 to 60" in answer.error
    assert "Use a smaller step size." in answer.error


def test_a_finished_run_is_never_touched(idiolect, finished):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    for arguments in (["run", "spec.toml", "--out", "run"], ["run", "run"], ["run", "run", "--resume"]):
        answer = idiolect(*arguments)
        assert answer.code == 2
        assert "The run in run is finished, and" in answer.error
        assert "Look at it with `idiolect report run`" in answer.error
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


@pytest.fixture
def interrupted(idiolect, here):
    """A run of 40 rounds that a Ctrl-C stopped in its second method."""
    from idiolect.cli import training

    def stop(self, stage):
        if stage.method == "fedavg" and stage.rounds >= 20:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.Bar, "follow", stop)
        answer = idiolect("run", "spec.toml", "--out", "cut", *LONG)
    assert (answer.code, answer.out) == (1, "")
    assert answer.error == (
        "Error: Interrupted. What was finished is kept in cut; `idiolect run cut --resume` goes on from there."
    )
    return here / "cut"


LONG = ("--set", "training.rounds = 40", "--set", "output.checkpoint_every = 8", "--set", "training.cohort = 2")


def test_an_interrupted_run_is_a_run_and_resumes_bit_for_bit(idiolect, here, interrupted):
    assert "already holds a run. Add --resume" in idiolect("run", "spec.toml", "--out", "cut", *LONG).error
    assert "it stopped before its first results" in idiolect("report", "cut").error
    assert idiolect("run", "spec.toml", "--out", "cut", *LONG, "--resume").code == 0
    assert idiolect("run", "spec.toml", "--out", "whole", *LONG).code == 0
    resumed, whole = contents(interrupted), contents(here / "whole")
    assert resumed == whole
    assert {"models/fedavg-seed0/shared.safetensors", "models/local-seed0/personal.safetensors"} <= set(whole)
    assert not list(interrupted.rglob("checkpoint"))
    assert not list(interrupted.rglob("*unfinished*"))


def test_a_run_folder_resumes_by_its_own_name(idiolect, interrupted):
    assert idiolect("run", "cut", "--resume", "--quiet").code == 0
    assert (interrupted / "done").is_file()


OTHER_SETTINGS = [
    ("training.rounds = 41", "training.rounds = 40, and this asks for 41"),
    ("methods.fedavg.step_size = 0.2", "methods.fedavg.step_size = 0.1, and this asks for 0.2"),
    ("methods.scaffold = {}", "methods = ['fedavg', 'local'], and this asks for ['fedavg', 'local', 'scaffold']"),
    ("data.path = 'doses.csv'", "data.path = 'hospitals.csv', and this asks for 'doses.csv'"),
    ("seeds = [3]", "seeds = [0], and this asks for [3]"),
]


def test_resuming_with_other_settings_is_refused_and_loses_nothing(idiolect, interrupted):
    before = {path: path.read_bytes() for path in interrupted.rglob("*") if path.is_file()}
    for change, sentence in OTHER_SETTINGS:
        answer = idiolect("run", "spec.toml", "--out", "cut", *LONG, "--resume", "--set", change)
        assert answer.code == 2, change
        assert f"The run in cut was started with {sentence};" in answer.error
        assert "resume it as it was with `idiolect run cut --resume`, or choose another --out." in answer.error
    assert {path: path.read_bytes() for path in interrupted.rglob("*") if path.is_file()} == before


def test_a_run_that_does_not_know_its_rows_is_not_resumed(idiolect, interrupted):
    (interrupted / "rows.json").unlink()
    answer = idiolect("run", "cut", "--resume")
    assert answer.code == 2
    assert "rows.json is missing" in answer.error


def test_a_truncated_checkpoint_falls_back_and_two_are_refused_with_a_way_out(idiolect, here, interrupted):
    shutil.copytree(interrupted, here / "both")
    for name in (
        "cut/checkpoint/fedavg/latest.npz",
        *(f"both/checkpoint/fedavg/{n}.npz" for n in ("latest", "previous")),
    ):
        (here / name).write_bytes((here / name).read_bytes()[:200])
    answer = idiolect("run", "cut", "--resume")
    assert answer.code == 0
    assert "cut/checkpoint/fedavg/latest.npz is damaged: training goes on from the checkpoint before" in answer.err
    answer = idiolect("run", "both", "--resume")
    assert answer.code == 2
    assert "damaged" in answer.error


def test_a_failure_while_writing_leaves_no_half_file(idiolect, here, monkeypatch):
    from idiolect.experiments import run_folder

    def half(writer, table):
        writer.file_handle.write(b"PAR1 and then the disk was full")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(run_folder.pq.ParquetWriter, "write_table", half)
        answer = idiolect("run", "spec.toml", "--out", "out")
    assert answer.code == 1  # a full disk is not the request's fault
    assert "No space left on device" in answer.error
    assert not list((here / "out").rglob("[!.]*.parquet"))
    assert not (here / "out/done").exists()
    assert idiolect("run", "spec.toml", "--out", "out", "--resume").code == 0
    assert not [path for path in (here / "out").rglob("*") if path.name.startswith(".")]


FULL = (errno.ENOSPC, 1, "No space left on device")  # not the request's fault
DENIED = (errno.EACCES, 2, "Permission denied")


@pytest.mark.parametrize(("number", "code", "sentence"), [FULL, DENIED])
def test_a_run_that_could_not_write_its_spec_can_be_started_again(idiolect, here, monkeypatch, number, code, sentence):
    def refuse(source, target):
        raise OSError(number, os.strerror(number), str(target))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        answer = idiolect("run", "spec.toml", "--out", "out")
    assert (answer.code, answer.out) == (code, "")
    assert sentence in answer.error
    assert not list((here / "out").iterdir())  # a hidden file would make it a folder of something else
    assert idiolect("run", "spec.toml", "--out", "out", "--set", "training.rounds = 1").code == 0


def test_an_unexpected_error_is_one_sentence_and_a_traceback_on_request(idiolect, monkeypatch, capsys):
    from idiolect.experiments import prepare

    def broken(*arguments):
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr(prepare, "choose_scores", broken)
    answer = idiolect("run", "spec.toml", "--out", "out")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (
        "Error: Unexpected ZeroDivisionError: first line second line "
        "(set IDIOLECT_TRACEBACK=1 and run again to see where).\n"
    )
    monkeypatch.setenv("IDIOLECT_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in idiolect("run", "spec.toml", "--out", "out").err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (RequestError("Line one\nand \x07 line two."), 2, "Error: Line one and \\x07 line two.\n"),
        (MemoryError(), 1, "Error: Out of memory. Use a smaller training.cohort"),
        (
            PermissionError(13, "Permission denied", "/no/such"),
            2,
            "Error: The system refused /no/such: Permission denied.",
        ),
        (KeyboardInterrupt(), 1, "Error: Interrupted."),
        (SystemExit(2), 2, ""),
        (SystemExit(), 0, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_every_failure_has_its_exit_code(capsys, error, code, sentence):
    def app():
        raise error

    assert failures.exit_code_of(app) == code
    assert capsys.readouterr().err.startswith(sentence)


def test_an_import_that_finds_no_memory_is_out_of_memory(capsys, monkeypatch):
    def app():
        raise ImportError("Encountered an error while initializing the extension.")

    monkeypatch.setattr(failures, "free_bytes", lambda: 10**6)
    assert failures.exit_code_of(app) == 1
    assert capsys.readouterr().err.startswith("Error: Out of memory.")


def sleep_in_steps(seconds):
    """What is sent again wakes no sleeper: it is heard between two steps, where one long sleep would be slept out."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.parametrize("deep", [False, True])  # in the callback itself, or in what it calls
def test_an_interrupt_that_falls_into_the_garbage_collector_comes_again(monkeypatch, deep):
    monkeypatch.setattr(interruption, "AGAIN", 0.05)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    calls = []

    def collecting(phase, info):
        if not calls:
            calls.append(phase)
            (lambda: signal.raise_signal(signal.SIGINT))() if deep else signal.raise_signal(signal.SIGINT)

    try:
        gc.callbacks.append(collecting)
        with interruption.heard():
            gc.collect()
            assert calls == ["start"]  # it came there, and nothing was raised
            with pytest.raises(KeyboardInterrupt):
                sleep_in_steps(10)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        time.sleep(0.1)  # once heard, it is not sent again
    finally:
        gc.callbacks.remove(collecting)
        signal.signal(signal.SIGINT, before)


def test_an_error_after_an_interrupt_is_the_interrupt(capsys):
    """An import that is cut short fails with an error of its own."""

    def app():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("cut short") from None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with interruption.heard():
            assert failures.exit_code_of(app) == 1
        assert not interruption.noted()
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.startswith("Error: Interrupted.")


def test_an_interrupt_whose_readers_are_gone_ends_the_process_all_the_same(monkeypatch):
    class Gone:
        def write(self, text=""):
            raise BrokenPipeError

        flush = write

    def ended(code):
        raise SystemExit(code)

    def app():
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch, interruption.heard() as leave:
            patch.setattr(interruption.os, "_exit", ended)
            for stream in ("stdout", "stderr"):
                patch.setattr(sys, stream, Gone())
            with pytest.raises(SystemExit, match="1"):
                failures.exit_code_of(app, leave)
        with ThreadPoolExecutor() as pool:  # Ctrl-C is the main thread's affair
            assert pool.submit(lambda: interruption.heard().__enter__()).result() is None
        signal.signal(signal.SIGINT, lambda number, frame: None)
        monkeypatch.setattr(interruption, "NAMES", ("SIGINT",))
        with interruption.heard() as leave:  # it means something else here
            assert leave is None
    finally:
        signal.signal(signal.SIGINT, before)


TO_CUT = ("--set", "training.rounds = 500", "--set", "output.checkpoint_every = 5")


@pytest.fixture(scope="module")
def long_once(tmp_path_factory, workshop):
    """The contents of a run that no signal cut short."""
    folder = tmp_path_factory.mktemp("long")
    shutil.copytree(workshop, folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["idiolect", "run", "spec.toml", "--out", "whole", "--quiet", *TO_CUT])
        assert failures.exit_code_of(app) == 0
    return contents(folder / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_a_signal_in_a_real_process_then_resume(number, idiolect, here, environment, long_once):
    """The whole way: the installed program, a signal, standard streams."""
    # a shell's background jobs, and so perhaps this test, ignore the signal; a person's terminal does not
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = [sys.executable, "-c", f"{listen}; from idiolect.cli import main; main()"]
    process = subprocess.Popen(
        [*program, "run", "spec.toml", "--out", "cut", *TO_CUT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    deadline = time.monotonic() + 60
    while not (here / "cut/checkpoint/local/previous.npz").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    named = "" if number is signal.SIGINT else f" ({number.name})"
    assert err.splitlines()[-1].startswith(f"Error: Interrupted{named}. What was finished is kept in cut; ")
    assert "`idiolect run cut --resume`" in err
    assert "Traceback" not in err
    assert not (here / "cut/done").exists()
    assert idiolect("run", "cut", "--resume").code == 0
    assert contents(here / "cut") == long_once


def test_a_number_beyond_single_precision_is_refused(idiolect, here):
    text = (here / "spec.toml").read_text()
    (here / "large.toml").write_text(f'{text}\n[methods.far]\nname = "fedavg"\nstep_size = 1e300\n')
    answer = idiolect("run", "large.toml", "--out", "far")
    assert answer.code == 2
    assert "step_size must be at most 3.4" in answer.error
    assert "1e+300" in answer.error


def test_closed_streams_hold_nothing_up(tmp_path):
    """As `idiolect list >&- 2>&-` leaves them."""
    words = "import sys; sys.stdout = sys.stderr = None; from idiolect.cli import main; sys.argv[1:] = ['list']; main()"
    assert subprocess.run([sys.executable, "-c", words], cwd=tmp_path, timeout=60).returncode == 0


def test_a_disk_that_takes_a_part_of_an_array_is_full(capsys):
    def refuse():
        raise OSError("96000 requested and 51168 written")

    assert failures.exit_code_of(refuse) == 1
    assert "No space left on device. Free some space first." in capsys.readouterr().err


def test_a_backend_that_is_not_there_is_named(capsys, monkeypatch):
    def refuse():
        raise RuntimeError("Unable to initialize backend 'tpu': UNAVAILABLE")

    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    assert failures.exit_code_of(refuse) == 2
    assert "JAX cannot compute on JAX_PLATFORMS='tpu' here; leave that variable out" in capsys.readouterr().err
