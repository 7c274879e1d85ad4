"""How much memory there is: the machine's, or the smaller share of a container."""

from __future__ import annotations

import pytest

from gated_domains.data import memory

GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 8 GiB free, and the folder that tells of a container's limits."""
    (tmp_path / "meminfo").write_text("MemTotal: 99999999 kB\nMemAvailable:  8388608 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CONTAINER", tmp_path)
    return tmp_path


def in_container(folder, limit, used, *, files=0):
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\nactive_file {files // 4}\ninactive_file {files - files // 4}\n")


def test_without_a_container_the_free_memory_of_the_machine_counts(machine):
    assert memory.available_bytes() == 8 * GIB


def test_a_container_without_a_limit_changes_nothing(machine):
    in_container(machine, "max", 1024)
    assert memory.available_bytes() == 8 * GIB


def test_in_a_container_its_limit_less_what_it_uses_counts(machine):
    in_container(machine, GIB, GIB // 4)
    assert memory.available_bytes() == GIB - GIB // 4


def test_files_that_are_only_kept_in_memory_do_not_count_as_used(machine):
    in_container(machine, 4 * GIB, 4 * GIB - 4096, files=3 * GIB)
    assert memory.available_bytes() == 3 * GIB + 4096


def test_a_larger_limit_than_the_machine_has_changes_nothing(machine):
    in_container(machine, 99 * GIB, 0)
    assert memory.available_bytes() == 8 * GIB


def test_a_container_past_its_limit_has_nothing_left(machine):
    in_container(machine, 1000, 2000)
    assert memory.available_bytes() == 0


def test_older_containers_say_it_elsewhere(machine):
    (machine / "memory").mkdir()
    (machine / "memory" / "memory.limit_in_bytes").write_text(f"{2 * GIB}\n")
    (machine / "memory" / "memory.usage_in_bytes").write_text(f"{GIB}\n")
    (machine / "memory" / "memory.stat").write_text(f"cache 1\ntotal_inactive_file {GIB // 2}\n")
    assert memory.available_bytes() == GIB + GIB // 2


def test_elsewhere_half_of_all_memory_is_taken_for_free(machine):
    (machine / "meminfo").unlink()
    assert memory.available_bytes() > 0


def test_where_nobody_tells_a_little_is_taken_for_free(machine, monkeypatch):
    (machine / "meminfo").unlink()
    monkeypatch.delattr(memory.os, "sysconf")
    assert memory.available_bytes() == 4 * GIB
