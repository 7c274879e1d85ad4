"""Several processes, one voice: of those that torchrun started, the first speaks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout

from gated_domains.data.errors import DataError
from gated_domains.runs.provenance import first_process

_PATIENCE = 4.0  # seconds


@contextmanager
def one_voice() -> Iterator[None]:
    """Around a command: all but the first process are silent, and what goes wrong is said once.

    torchrun ends all processes as soon as one has ended. What is refused is mostly refused in all of them: the others
    wait, so that the first has said it and is gone before they are. What is wrong in one of them alone is then said by
    that one, while those that lost their connection to it wait in turn.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield
        return
    try:
        with nullcontext() if first_process() else _silence():
            yield
    except (DataError, OSError):
        time.sleep(0 if first_process() else _PATIENCE)
        raise
    except Exception:
        time.sleep(_PATIENCE / 2 if first_process() else _PATIENCE)
        raise


@contextmanager
def _silence() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield
