"""Event files that TensorBoard reads, written with its package alone: TensorFlow is not needed, and not imported."""

from __future__ import annotations

import os
import socket
import time
from itertools import count
from pathlib import Path
from typing import Any

_files = count()


class EventFile:
    """One event file in a folder, made with the first numbers that come."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        _need_tensorboard()
        self.folder = Path(folder)
        self._records: Any = None

    def write(self, values: dict[str, float], step: int) -> None:
        """Add numbers by tag; they are on the disk when this returns."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._records is None:
            self._records = self._open()
            self._records.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=scalars))
        self._records.write(event.SerializeToString())
        self._records.flush()

    def close(self) -> None:
        """Close the file; numbers that come later begin another."""
        if self._records is not None:
            self._records.close()
            self._records = None

    def _open(self) -> Any:
        # Not its EventFileWriter, which imports TensorFlow wherever that lies, whichever backend runs.
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.folder.mkdir(parents=True, exist_ok=True)
        parts = (f"{int(time.time()):010d}", socket.gethostname(), str(os.getpid()), str(next(_files)))
        return RecordWriter((self.folder / f"events.out.tfevents.{'.'.join(parts)}").open("xb"))


def _need_tensorboard() -> None:
    try:
        import tensorboard.compat.proto.event_pb2
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError as error:
        raise ImportError(f"log_dir needs TensorBoard ({error}): pip install tensorboard", name=error.name) from error
