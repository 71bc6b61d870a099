"""What a user can put right is one line on stderr, status 2, and leaves nothing behind."""

from pathlib import Path

import pytest

from deepccg.core import InputError

BAD = [
    (["--method", "nope"], "unknown method 'nope': choose one of sgd, multi-task"),
    (["--method", "er,nope"], "unknown method 'nope'"),
    (["--method", ":X"], "unknown method ':X'"),
    (["--method", "no.module:X"], "cannot import method no.module:X"),
    (["--method", "depccg"], "unknown method 'depccg' (did you mean deepccg?)"),
    (["--set", "nope=1"], "nope is not a field; known: dataset, scenario, preset"),
    (["--set", "lr=0.1"], "lr is not a field; did you mean method.lr?"),
    (["--set", "wdth=20"], "wdth is not a field; did you mean network.width?"),
    (["--method", "er", "--set", "selector=lasso"], "selector is not a field; known: dataset"),
    (["--set", "method.selektor=lasso"], "method.selektor is not a field; did you mean selector?"),
    (["--set", "stream.batchsize=1"], "stream.batchsize is not a field; did you mean batch_size?"),
    (["--set", "method.lr=fast"], "method.lr should be a valid number"),
    (["--set", "method.lr"], "--set method.lr: write FIELD=VALUE"),
    (["--set", "=3"], "--set =3: write FIELD=VALUE"),
    (["--set", "seed=x"], "seed should be a valid integer"),
    (["--dataset", "nope"], "unknown data set 'nope'"),
    (["--dataset", "digit"], "did you mean digits?"),
    (["--dataset", "./no/where"], "there is no folder no/where"),
    (["--dataset", "cifar10", "--data-dir", "nowhere"], "--data-dir nowhere is not a directory"),
    (["--dataset", "cifar10", "--data-dir", "."], "no train*.parquet for cifar10"),
    (["--stream", "random"], "stream.kind should be 'disjoint', 'shifting-window'"),
    (["--stream", "shifting-windw"], "(did you mean shifting-window?)"),
    (["--preset", "papre"], "(did you mean paper?)"),
    (["--preset", "as-printed"], "preset as-printed was removed: paper comes nearest to it"),
    (["--scenario", "domain"], "scenario should be 'task' or 'class'"),
    (["--seeds", "x"], "--seeds x: write for example 0, 0-2 or 0,3,5"),
    (["--seeds", "3-1"], "--seeds 3-1 names no seed"),
    (["--seeds", "-1"], "--seeds -1: write for example"),
    (["--seeds", "0,,2"], "--seeds 0,,2: write for example"),
    (["--validation", "3"], "evaluation.validation should be less than 1"),
    (["--validation", "0.001"], "holding out 0.001 of them"),
    (["--memory", "-1"], "memory should be greater than or equal to 0"),
    (["--memory", "3", "--memory-per-class", "3"], "one of them"),
    (["--eval-every", "often"], "evaluation.every should be"),
    (["--eval-every", "0"], "evaluation.every should be greater than 0"),
    (["--eval-images", "3"], "3 images cannot show 10 classes"),
    (["--device", "nonsense"], "device 'nonsense' cannot be used"),
    (["--threads", "0"], "threads should be greater than 0"),
    (
        ["--preset", "nope"],
        "preset 'nope' is neither one of default, strong, paper nor a file",
    ),
    (["--config", "nowhere.toml"], "cannot read --config nowhere.toml: No such file"),
    (["--config", "."], "cannot read --config .: Is a directory"),
    (["--set", "network.kind=resnet18"], "the ResNet needs images of at least"),
    (["--set", "stream.classes_per_task=99"], "99"),
]


def left_behind() -> list[str]:
    return sorted(str(file) for file in Path().rglob("*"))


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(each) for each, _ in BAD])
def test_bad_input_is_one_line(deepccg, arguments: list[str], says: str) -> None:
    done = deepccg("run", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("Error: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    assert says in done.err
    assert left_behind() == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"memory = ", "--config my.toml is not valid TOML"),
        (b"\xff\xfe\x00", "--config my.toml is not valid TOML"),
        (b"memory = 3\nmemory_per_class = 3\n", "one of them"),
        (b"[stream]\nknd = 'disjoint'\n", "stream.knd is not a field; did you mean kind?"),
        (b"seed = [1]\n", "seed should be a valid integer"),
        (b"seed = 1.5\n", "seed should be a valid integer"),
        (b"stream = 3\n", "stream should be a valid dictionary"),
    ],
)
def test_a_broken_configuration_file_is_one_line(deepccg, content: bytes, says: str) -> None:
    Path("my.toml").write_bytes(content)
    done = deepccg("run", "--config", "my.toml")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("Error: ")
    assert says in done.err
    assert left_behind() == ["my.toml"]


def test_a_place_that_cannot_be_written(deepccg) -> None:
    Path("file").write_text("")
    for arguments in (["run", "--out", "file/below"], ["stream", "--png", "file/below.png"]):
        done = deepccg(*arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert done.err.startswith("Error: cannot write ")
    assert left_behind() == ["file"]


def test_a_learning_rate_that_explodes_is_one_line(deepccg) -> None:
    done = deepccg("run", "--method", "sgd", "--set", "method.lr=1e30", "--out", "out")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "try a smaller lr" in done.err


def test_debug_raises_what_was_wrong(deepccg) -> None:
    with pytest.raises(InputError, match="unknown method 'nope'"):
        deepccg("--debug", "run", "--method", "nope")


def test_the_program_says_one_line_or_with_debug_a_traceback(deepccg_process) -> None:
    plain = deepccg_process("run", "--method", "nope")
    assert (plain.code, plain.out, plain.err.count("\n")) == (2, "", 1)
    assert plain.err.startswith("Error: unknown method 'nope'")
    debug = deepccg_process("--debug", "run", "--method", "nope")
    assert debug.code != 0
    assert debug.out == ""
    assert "Traceback (most recent call last)" in debug.err
    assert "InputError: unknown method 'nope'" in debug.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--memory", "x"), "Invalid value for '--memory'"),
        (("run", "--nope"), "No such option: --nope"),
        (("nope",), "No such command 'nope'"),
        (("predict",), "Missing argument"),
    ],
)
def test_a_wrong_command_line_is_one_line(deepccg, arguments, said) -> None:
    done = deepccg(*arguments)
    assert done.code == 2
    assert said in done.err
    assert "--help" in done.err
    assert done.err.count("\n") == 1
