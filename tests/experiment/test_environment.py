"""What a run says it ran on: the commit is that of our own sources or none."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

import deepccg.experiment.environment as installed
from deepccg.experiment import resolve


def git(*arguments: str, cwd: Path) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, and our sources copied into it, not committed."""
    place = tmp_path / "repository"
    place.mkdir()
    git("init", "--quiet", cwd=place)
    git("commit", "--quiet", "--allow-empty", "--message", "first", cwd=place)
    shutil.copy(installed.__file__, place / "environment.py")
    return place


def recorded_commit(repository: Path) -> str | None:
    spec = importlib.util.spec_from_file_location("copied", repository / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.environment(resolve({}))["commit"]


def test_the_commit_of_a_checkout_is_recorded(repository: Path) -> None:
    git("add", ".", cwd=repository)
    git("commit", "--quiet", "--message", "ours", cwd=repository)
    head = git("rev-parse", "HEAD", cwd=repository)
    assert recorded_commit(repository) == head[:12]
    with (repository / "environment.py").open("a") as file:
        file.write("# changed\n")
    assert recorded_commit(repository) == f"{head[:12]}+"


def test_the_commit_of_another_project_is_not_ours(repository: Path) -> None:
    # An environment inside another project's repository: `git describe` describes that project.
    assert git("describe", "--always", cwd=repository)
    assert recorded_commit(repository) is None


def test_without_a_repository_there_is_no_commit(repository: Path) -> None:
    shutil.rmtree(repository / ".git")
    assert recorded_commit(repository) is None
