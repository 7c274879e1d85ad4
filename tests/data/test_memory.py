"""How much memory there is: the machine's, or the smaller share of a container."""

from __future__ import annotations

import pytest

from gated_domains.data import memory


@pytest.fixture
def container(tmp_path, monkeypatch):
    """A machine with 8 GiB free, and the folder that tells of a container's limits."""
    (tmp_path / "meminfo").write_text("MemTotal: 99999999 kB\nMemAvailable:  8388608 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CONTAINER", tmp_path)
    return tmp_path


def test_without_a_container_the_free_memory_of_the_machine_counts(container):
    assert memory.available_bytes() == 8 * 2**30


def test_a_container_without_a_limit_changes_nothing(container):
    (container / "memory.max").write_text("max\n")
    (container / "memory.current").write_text("1024\n")
    assert memory.available_bytes() == 8 * 2**30


def test_in_a_container_its_limit_less_what_it_uses_counts(container):
    (container / "memory.max").write_text(f"{2**30}\n")
    (container / "memory.current").write_text(f"{2**28}\n")
    assert memory.available_bytes() == 2**30 - 2**28


def test_a_container_past_its_limit_has_nothing_left(container):
    (container / "memory.max").write_text("1000\n")
    (container / "memory.current").write_text("2000\n")
    assert memory.available_bytes() == 0


def test_elsewhere_half_of_all_memory_is_taken_for_free(container):
    (container / "meminfo").unlink()
    assert memory.available_bytes() > 0
