"""What a live report makes again when files change, without a server; see ``test_live_page.py``."""

import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from deepccg.report.assemble import Known, assemble_report, read_report
from deepccg.report.live import LiveReport


@pytest.fixture
def place(runs: Path, tmp_path: Path) -> Path:
    """Copies of two finished runs."""
    for method in ("er", "sgd"):
        shutil.copytree(runs / method / "seed-0", tmp_path / "runs" / method)
    return tmp_path / "runs"


def content(report: LiveReport) -> str:
    return report.version.content.decode()


def test_a_page_is_made_again_only_where_a_file_changed(place: Path, runs: Path) -> None:
    report = LiveReport([place], "Runs", 0)
    first = report.version
    report.update()
    assert report.version is first
    (place / "er" / "config.toml").touch()  # another time, the same content
    report.update()
    assert report.version is first
    records = place / "er" / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])  # being written
    report.update()
    assert report.version.tag != first.tag
    assert "0 running, 1 stopped" in content(report)
    assert " of 20" in content(report)
    with FileLock(place / "er" / ".lock"):
        report.update()
        assert "1 running, 0 stopped" in content(report)
    report.update()  # no file that holds results changed
    assert f"stopped: deepccg resume {place / 'er'}<" in content(report)
    records.write_bytes(b"".join(lines))
    report.update()
    assert report.version.content == first.content  # the same runs give the same bytes
    shutil.copytree(runs / "deepccg" / "seed-0", place / "deepccg")
    report.update()
    assert "3 runs in 1 setting" in content(report)


def test_there_may_be_no_run_yet(place: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    report = LiveReport([empty], "Runs", 0)
    assert "There is no run yet" in content(report)
    shutil.copytree(place / "er", empty / "er")
    report.update()
    assert "There is no run yet" not in content(report)
    assert "1 run in 1 setting" in content(report)


def test_a_directory_that_disappears_leaves_the_page(place: Path) -> None:
    report = LiveReport([place], "Runs", 0)
    before = report.version
    place.rename(place.with_name("elsewhere"))
    with pytest.warns(UserWarning, match="not a directory"):
        report.update()
    assert report.version is before


def test_only_what_changed_is_read(place: Path) -> None:
    known = Known()
    first = read_report([place], known)
    (place / "er" / "timing.json").touch()
    second = read_report([place], known)
    (before,), (after,) = first.comparisons, second.comparisons
    by_method = {row.method: row for row in before.rows}
    for row in after.rows:
        same = row.method == "sgd"
        assert (row.first is by_method[row.method].first) == same
        assert (second.details[row.key] is first.details[row.key]) == same
    assert second.page() == assemble_report([place]).page()


def test_only_a_live_page_may_ask(place: Path) -> None:
    report = assemble_report([place])
    written, live = report.page(), report.page(live=True)
    assert "connect-src" not in written
    assert "fetch(" not in written
    assert "default-src 'none'" in live
    assert "connect-src 'self'" in live
