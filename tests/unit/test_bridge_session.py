"""A worker process from HELLO to CLOSED, with the test in the JVM's place."""

from __future__ import annotations

import signal
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from flink_pubsub.bridge.frames import MAX_FRAME_BYTES, PROTOCOL_VERSION, Kind, decode_json, encode
from flink_pubsub.bridge.session import build_info
from tests.bridge_connectors import CollectingSink, CountingSource
from tests.bridge_driver import WorkerDriver


def failure(worker: WorkerDriver) -> dict[str, Any]:
    return worker.expect_json(Kind.FAILED)


def test_hello_tells_protocol_build_python_and_interpreter() -> None:
    with WorkerDriver() as worker:
        hello = worker.expect_json(Kind.HELLO)
    assert hello == {
        "protocol": PROTOCOL_VERSION,
        **build_info(),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "executable": sys.executable,
    }


def test_a_planner_answers_with_splits_owners_and_the_next_state() -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(splits=3), "planner", parallelism=2)
        assert worker.expect_json(Kind.READY) == {}
        worker.send_json(Kind.PLAN, state={"plans": 4})
        planned = worker.expect_json(Kind.PLANNED)
        worker.send_json(Kind.CLOSE, seconds=1)
        worker.expect(Kind.CLOSED)
        assert worker.ended() == 0
    assert [split["owner"] for split in planned["splits"]] == [0, 1, 0]
    assert planned["state"] == {"plans": 5}


def test_a_reader_sends_one_batch_per_credit_and_nothing_without() -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(count=6), "reader")
        assert worker.expect_json(Kind.READY)["close_seconds"] == 5
        worker.send_json(Kind.ASSIGN, splits=[{"id": "s0", "data": "6"}])
        worker.send(Kind.FETCH)
        first = worker.expect(Kind.RECORDS)
        worker.send_json(Kind.CLOSE, seconds=1)
        worker.expect(Kind.CLOSED)
        assert worker.ended() == 0
    assert struct.unpack_from(">HBqII", first) == (0, 2, 0, 4, 4)
    assert first.endswith(b"0123")
    assert not [kind for kind, _ in worker.skipped if kind is Kind.RECORDS]


def test_checkpoints_and_pauses_reach_the_reader(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with WorkerDriver() as worker:
        worker.open(CountingSource(count=6, journal=str(journal)), "reader")
        worker.send_json(Kind.ASSIGN, splits=[{"id": "s0", "data": "6"}])
        worker.send_json(Kind.PAUSE_RESUME, pause=["s0"], resume=[])
        worker.send_json(Kind.SNAPSHOT, checkpoint=3, positions={"s0": 2})
        worker.send_json(Kind.CHECKPOINT_COMPLETE, checkpoint=3)
        worker.send_json(Kind.RECORD_FAILED, split="s0", sequence=2, error="bad", emitting=True)
        worker.send_json(Kind.CLOSE, seconds=1)
        worker.expect(Kind.CLOSED)
    assert journal.read_text().splitlines() == [
        "open None",
        "assign s0",
        "pause ['s0'] resume []",
        "snapshot 3 {'s0': 2}",
        "complete 3",
        "failed s0 2 True",
        "close",
    ]


def test_metrics_come_without_being_asked_for() -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(), "reader")
        assert worker.expect_json(Kind.METRICS) == {
            "counters": {"counted": 0, "checkpoints.completed": 0},
            "gauges": {"splits": 0},
            "lasting": {"endings": 0},
        }


def test_what_a_writer_submits_from_any_thread_runs_on_the_command_thread_and_fails_like_a_command(tmp_path: Path) -> None:
    with WorkerDriver() as worker:
        worker.open(CollectingSink(str(tmp_path / "out"), quirk="submits"), "writer")
        worker.send_json(Kind.FLUSH, flush=1, end_of_input=False)
        assert worker.expect_json(Kind.FLUSHED) == {"flush": 1}
        worker.send_json(Kind.FLUSH, flush=13, end_of_input=False)
        assert failure(worker)["message"] == "an action raised"
        worker.send_json(Kind.FLUSH, flush=2, end_of_input=False)
        worker.send_json(Kind.CLOSE, seconds=1)
        worker.expect(Kind.CLOSED)
        assert worker.ended() == 0
    assert not [kind for kind, _ in worker.skipped if kind is Kind.FLUSHED], "something ran after the failure"


def test_a_writer_settles_and_flushes(tmp_path: Path) -> None:
    with WorkerDriver() as worker:
        worker.open(CollectingSink(str(tmp_path / "out")), "writer", subtask=2)
        assert worker.expect_json(Kind.READY)["max_in_flight_records"] == 100
        worker.send(Kind.WRITE, struct.pack(">IBqII", 2, 1, -(2**63), 1, 2) + b"abb")
        assert worker.expect_json(Kind.SETTLED) == {"records": 2, "bytes": 3}
        worker.send_json(Kind.FLUSH, flush=9, end_of_input=True)
        assert worker.expect_json(Kind.FLUSHED) == {"flush": 9}
    assert (tmp_path / "out.2").read_bytes() == b"a\nbb\n"


def test_what_user_code_prints_goes_to_stderr() -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(), "reader")
        worker.send_json(Kind.ASSIGN, splits=[{"id": "s0", "data": "6"}])
        worker.send_json(Kind.CLOSE, seconds=1)
        worker.expect(Kind.CLOSED)
        worker.ended()
    assert b"user code may print" in worker.errors


@pytest.mark.feature("BEY-04")
@pytest.mark.parametrize("quirk", ["open raises", "poll raises"])
def test_an_exception_is_reported_with_its_traceback(quirk: str) -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(quirk=quirk), "reader")
        worker.send_json(Kind.ASSIGN, splits=[{"id": "s0", "data": "6"}])
        worker.send(Kind.FETCH)
        failed = failure(worker)
        worker.send_json(Kind.CLOSE, seconds=1)
        assert worker.ended() == 0
    assert failed["type"] == "ValueError"
    assert failed["message"] in ("closed on Mondays", "poll broke")
    assert "bridge_connectors.py" in failed["traceback"]


class Translated(CountingSource):
    """Its users read German."""

    def reworded(self, text: str) -> str:
        return text.replace("closed on Mondays", "montags geschlossen")


@pytest.mark.feature("BEY-04")
def test_a_connector_may_tell_failures_in_the_words_of_its_users() -> None:
    with WorkerDriver() as worker:
        worker.open(Translated(quirk="open raises"), "reader")
        failed = failure(worker)
    assert failed["message"] == "montags geschlossen"
    assert failed["traceback"].endswith("ValueError: montags geschlossen\n")


@pytest.mark.feature("BEY-03")
def test_the_end_of_stdin_closes_the_reader_and_ends_the_process(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "journal"
    with WorkerDriver() as worker:
        worker.open(CountingSource(journal=str(journal)), "reader")
        worker.expect(Kind.READY)
        worker.stdin.close()
        assert worker.ended() == 0
    assert journal.read_text() == "open None\nclose\n"


@pytest.mark.feature("BEY-03")
def test_a_close_that_hangs_is_cut_off_at_its_budget() -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(quirk="close hangs"), "reader")
        worker.expect(Kind.READY)
        worker.send_json(Kind.CLOSE, seconds=0.1)
        assert worker.ended() == 1


@pytest.mark.feature("DEP-04")
def test_another_build_is_refused_naming_both_and_the_mend() -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(), "reader", version="9.9.9")
        message = failure(worker)["message"]
    assert "flink-pubsub 9.9.9" in message
    assert sys.executable in message
    assert "pip install flink-pubsub==9.9.9" in message


@pytest.mark.feature("DEP-04")
def test_another_python_is_refused_naming_both_and_the_mend() -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(), "reader", client_python="3.7")
        message = failure(worker)["message"]
    assert "Python 3.7" in message
    assert "python_executable" in message


@pytest.mark.feature("DEP-04")
def test_a_module_that_the_worker_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("class Connector:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__("only_here")
    with WorkerDriver() as worker:
        worker.open(module.Connector(), "reader")
        assert "needs the Python module 'only_here'" in failure(worker)["message"]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (struct.pack(">IB", MAX_FRAME_BYTES + 1, Kind.FLUSH), "claims"),
        (struct.pack(">IB", 1, 0x7E), "unknown frame kind 0x7e"),
        (encode(Kind.FLUSH, b"{}"), "a reader cannot handle FLUSH"),
        (encode(Kind.SNAPSHOT, b"nonsense"), "not JSON"),
    ],
)
def test_a_broken_frame_fails_the_session_with_one_clear_error(frame: bytes, message: str) -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(), "reader")
        worker.expect(Kind.READY)
        worker.stdin.write(frame)
        worker.stdin.flush()
        assert message in failure(worker)["message"]
        worker.stdin.close()
        worker.ended()


def test_interrupts_of_the_terminal_do_not_end_a_worker() -> None:
    with WorkerDriver() as worker:
        worker.open(CountingSource(), "reader")
        worker.expect(Kind.READY)
        worker.process.send_signal(signal.SIGINT)
        worker.send_json(Kind.CLOSE, seconds=1)
        worker.expect(Kind.CLOSED)
        assert worker.ended() == 0


def test_a_session_that_was_never_opened_closes_too() -> None:
    with WorkerDriver() as worker:
        worker.expect(Kind.HELLO)
        worker.send_json(Kind.CLOSE, seconds=1)
        assert decode_json(Kind.FAILED, worker.expect(Kind.FAILED))["message"] == "closed before it was opened"
        worker.expect(Kind.CLOSED)
        assert worker.ended() == 0
