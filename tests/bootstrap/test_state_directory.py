"""A state directory is its user's alone, who can write it; nobody else decides where its path leads."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tyrum_gateway.bootstrap.state_directory import StateDirectory
from tyrum_gateway.cli import doctor
from tyrum_gateway.cli.finding import Result
from tyrum_gateway.domain.errors import StateUnusable

SOMEBODY = 12_345
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def test_what_is_missing_is_made_for_its_user_alone(tmp_path: Path) -> None:
    """The directory is private, those above it have the usual mode; a link of one's own is followed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    path = tmp_path / "link" / "above" / ".." / "above" / "state"
    StateDirectory.prepare(path)
    made = tmp_path / "real" / "above"
    assert stat.S_IMODE((made / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE(made.stat().st_mode) & 0o022 == 0


@root_only
def test_a_link_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    """Wherever it stands on the way and wherever it leads: its owner could change that at any time."""
    (tmp_path / "mine" / "state").mkdir(parents=True, mode=0o700)
    for link, path in [("last", ""), ("first", "state")]:
        (tmp_path / link).symlink_to(tmp_path / "mine" / ("state" if not path else ""))
        os.lchown(tmp_path / link, SOMEBODY, SOMEBODY)
        with pytest.raises(StateUnusable, match=f"symbolic link `{tmp_path / link}` of uid {SOMEBODY}"):
            StateDirectory.prepare(tmp_path / link / path)
    (tmp_path / "indirect").symlink_to("first")
    with pytest.raises(StateUnusable, match=f"symbolic link `{tmp_path / 'first'}` of uid {SOMEBODY}"):
        StateDirectory.prepare(tmp_path / "indirect" / "new")
    assert not (tmp_path / "mine" / "new").exists()


@root_only
def test_a_directory_of_somebody_else_is_not_entered(tmp_path: Path) -> None:
    """Its owner could put another state directory there; nothing is made in it."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", SOMEBODY, SOMEBODY)
    with pytest.raises(StateUnusable, match=f"directory `{tmp_path / 'theirs'}` of uid {SOMEBODY}"):
        StateDirectory.prepare(tmp_path / "theirs" / "state")
    assert not (tmp_path / "theirs" / "state").exists()


def test_where_everybody_may_rename_nothing_is_kept(tmp_path: Path) -> None:
    """A directory that everybody may write is passed only with the sticky bit, as /tmp has it."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(StateUnusable, match="everybody may replace"):
        StateDirectory.prepare(tmp_path / "open" / "state")
    (tmp_path / "open").chmod(0o1777)
    StateDirectory.prepare(tmp_path / "open" / "state")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A directory of a user who is not root, as whom the test goes on: root may write everywhere."""
    if os.geteuid():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chown(name, SOMEBODY, SOMEBODY)
        os.seteuid(SOMEBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


def test_what_cannot_be_written_is_no_state_directory(own: Path) -> None:
    """A plain file and a directory that one may not write are refused clearly; the doctor finds both."""
    file, closed = own / "file", own / "closed"
    file.touch(0o600)
    closed.mkdir(0o500)
    for path, word in [
        (file, "is no directory"),
        (closed, "may not write"),
        (closed / "new", "cannot create"),
    ]:
        with pytest.raises(StateUnusable, match=word):
            StateDirectory.prepare(path)
        assert doctor.state_directory(path).result is Result.FAIL
    closed.chmod(0o700)
    (closed / "gateway.lock").mkdir()
    with pytest.raises(StateUnusable, match="cannot open the lock"), StateDirectory.prepare(closed).locked():
        pass
    assert doctor.state_directory(closed / "new").result is Result.OK


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    """The way ends after as many links as the kernel follows."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(StateUnusable, match="too many symbolic links"):
        StateDirectory.prepare(tmp_path / "a")


def test_a_removed_lock_file_makes_no_room_for_a_second_gateway(tmp_path: Path) -> None:
    """Who tidies up a `stale` lock lets nobody in; the end of the holder does."""
    directory = StateDirectory.prepare(tmp_path / "state")
    for removed in (False, True):
        with directory.locked():
            if removed:
                (directory.path / "gateway.lock").unlink()
            with pytest.raises(StateUnusable, match="another gateway"), directory.locked():
                pass
    with directory.locked():
        pass
