"""The peak of memory is that of a training: what came before does not count, and what cannot be told is not said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gated_domains.training import engine
from gated_domains.training.engine import PeakMemory
from made_runs import recipe, runner, vectors

CPU = torch.device("cpu")
MIB = 2**20
can_forget = pytest.mark.skipif(not engine._forgotten(), reason="the peak of a process cannot begin anew here")


def touched(mib: int) -> int:
    """Take so much memory, write to all of it, and let it go."""
    return int(np.ones(mib * MIB, dtype=np.uint8)[-1])


@can_forget
def test_what_is_taken_meanwhile_counts_though_it_is_let_go_again():
    before = PeakMemory(CPU).bytes()
    peak = PeakMemory(CPU)
    touched(200)
    assert peak.bytes() - before == pytest.approx(200 * MIB, rel=0.1)


@can_forget
def test_what_was_taken_before_does_not_count():
    touched(300)
    high = engine._resident_peak()
    assert PeakMemory(CPU).bytes() < high - 200 * MIB


def test_where_the_peak_cannot_begin_anew_it_is_unknown_until_it_rises(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(engine, "_CLEAR", tmp_path / "not" / "there")
    monkeypatch.setattr(engine, "_STATUS", tmp_path / "status")
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t    2048 kB\n")
    peak = PeakMemory(CPU)
    assert peak.bytes() is None
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t    4096 kB\n")
    assert peak.bytes() == 4 * MIB


def test_without_proc_the_system_is_asked_for_its_count(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(engine, "_CLEAR", tmp_path / "clear_refs")
    monkeypatch.setattr(engine, "_STATUS", tmp_path / "status")
    assert engine._resident_peak() == engine._peak_of_usage()
    assert engine._peak_of_usage() > 20 * MIB  # Python with torch takes more


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_it_is_what_torch_took_there():
    device = torch.device("cuda", 0)
    held = torch.ones(MIB, device=device)
    peak = PeakMemory(device)
    torch.ones(64 * MIB, dtype=torch.uint8, device=device)
    assert 64 * MIB <= peak.bytes() < 64 * MIB + 8 * held.numel() * 4


@can_forget
def test_a_run_tells_the_peak_of_its_training_and_of_what_it_stands_on(tmp_path: Path):
    made = runner(vectors(), tmp_path)
    head = made.run(recipe("linear")).result().to_json()["peak_memory"]
    body = made.run(recipe("erm")).result().to_json()["peak_memory"]
    assert body > 20 * MIB
    assert head >= body
