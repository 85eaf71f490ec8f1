"""`serve` on a disk that gets full: training continues, what is lost is said, and that it ends."""

import re
import signal
from typing import Any

from serve_loop import HONEST, serving, until_pulled
from small_disks import enlarge, memory_disk

from reasoning_gym_environment.storage.dumps import read_dump


async def test_a_full_disk_costs_rows_and_checkpoints_but_no_training(
    bench: Any, tokenizer: Any
) -> None:
    with memory_disk(bench.folder / "env_checkpoints", "96k") as disk:
        settings = {"data_dumps_dir": str(disk / "dumps")}  # groups are dumped by default
        async with serving(bench, tokenizer, HONEST, save_every=2, **settings) as (
            command,
            trainer,
            _,
        ):
            await command.until_logged("lost to disk so far")
            await command.until_logged(" was not saved: ")
            await until_pulled(trainer, command, batches=trainer.batches + 5)
            enlarge(disk, "16m")
            await command.until_logged("lost to disk\n")
            command.process.send_signal(signal.SIGHUP)
            assert await command.exit_code() == 129, command.said()
        assert all(read_dump(file).torn == 0 for file in (disk / "dumps").iterdir())
    said = command.said()
    assert re.search(r"ERROR .*Dumps can't be written to .*No space left on device", said)
    assert re.search(r"ERROR .*The checkpoint of step \d+ was not saved: .*No space left", said)
    assert re.search(
        r"WARNING .*Dumps are written to .* again after \d+ s, with \d+ groups?.* lost", said
    )
    assert re.search(r"'checkpoints/failed': \d+.*'dumps/lost': \d+", said)
    assert f"To see the rollouts: reasoning-gym-environment report {disk / 'dumps'}\n" in said
    assert "Traceback" not in said
