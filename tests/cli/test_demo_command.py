"""``deepccg demo``: a page of a real run."""

import re


def test_a_page_of_a_real_run(deepccg, place):
    done = deepccg("demo", "--out", "here/demo.html", "--seed", "2")
    assert (done.code, done.err) == (0, "")
    ends = re.fullmatch(
        r"Demo \(DeepCCG (\d+) %, ER (\d+) % at the end\): here/demo.html\n", done.out
    )
    assert ends is not None
    page = (place / "here" / "demo.html").read_text(encoding="utf-8")
    for name, percent in zip(("DeepCCG", "ER"), ends.groups(), strict=True):
        assert f"{name} ends at {percent} %" in page
    assert "deepccg demo --seed 2" in page
    assert len(page) < 400_000


def test_a_place_that_cannot_be_written_is_one_line(deepccg, place):
    (place / "file").write_text("")
    done = deepccg("demo", "--out", "file/demo.html")
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_a_directory_is_no_page(deepccg, place):
    done = deepccg("demo", "--out", str(place))
    assert done.err == f"Error: {place} is a directory: give --out the name of a file\n"
