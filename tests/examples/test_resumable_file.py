"""Resumable file processing: progress is shown, and ``kill -9`` repeats little of the work."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tenure import SyncClient
from tenure.core.task.record import TaskState
from tests.examples.stage import Script, Stage
from tests.polling import eventually_sync

LINE: Final = "the quick brown fox\n"
LINE_COUNT: Final = 4_000
# The worker's module: the example on a slow disk, so that there is a middle to be killed in.
SLOW_DISK: Final = """
import io, time
import resumable_file

class SlowFile(io.BufferedReader):
    def __init__(self, path, mode):
        super().__init__(io.FileIO(path))

    def readline(self):
        time.sleep(0.001)
        return super().readline()

resumable_file.open = SlowFile
activities = [resumable_file.count_words]
"""


def percents(script: Script) -> list[float]:
    return [float(line.split()[0]) for line in script.lines if " %  " in line]


def test_a_killed_worker_is_followed_by_one_that_resumes(
    stage: Stage, client: SyncClient, tmp_path: Path
) -> None:
    text = tmp_path / "words.txt"
    text.write_text(LINE * LINE_COUNT)
    (stage.folder / "slow_disk.py").write_text(SLOW_DISK)

    def reached() -> list[float | None]:
        found = client.list(type="count_words", state=TaskState.RUNNING)
        # The first line is shown at once; this is a checkpoint on the way.
        return [each.progress.percent for each in found if (each.progress.percent or 0) > 1]

    with stage.worker("slow_disk") as first, stage.script("resumable_file.py", str(text)) as script:
        eventually_sync(reached)
        first.kill()
        with stage.worker("slow_disk"):
            said = script.end()
        shown = percents(script)
    assert said[-1] == f"{4 * LINE_COUNT} words"
    # It never went back to the beginning.
    assert shown == sorted(shown)
    assert shown[-1] == 100
    (task,) = [each for each in client.list(type="count_words") if each.attempt == 2]
    attempts = client.handle(task.task_id).attempts()
    assert [each.outcome for each in attempts] == ["worker_lost", "succeeded"]


def test_the_script_counts_the_words_of_a_file(stage: Stage) -> None:
    with stage.worker("resumable_file"):
        said = stage.run("resumable_file.py", "resumable_file.py")
    count = len((stage.folder / "resumable_file.py").read_text().split())
    assert said[-2:] == [f"100.0 %  {count} words", f"{count} words"]
