"""Programs that start others and variables that programs obey are known by name."""

import re
from pathlib import Path

import pytest

from tyrum_gateway.domain.policy import (
    HARMLESS,
    Decision,
    Effect,
    Rule,
    Target,
    injects,
    starts_nothing,
    starts_others,
)


@pytest.mark.parametrize(
    "program",
    [
        "bash", "/bin/sh", "/usr/bin/python3", "/usr/bin/python3.11", "python2.7", "/opt/perl5.36.0",
        "php8.2", "lua5.4",
        "ruby3.1", "node", "nodejs", "node18", "env", "sudo", "xargs", "find", "timeout", "nohup", "nice",
        "git", "ssh", "awk",
        "gawk", "mawk", "original-awk", "sed", "tar", "bsdtar", "vim", "vim.tiny", "vim.basic", "less",
        "make", "gmake", "docker",
        "busybox", "gcc-12", "x86_64-linux-gnu-gcc-12", "aarch64-unknown-linux-musl-ld",
        "ld-linux-x86-64.so.2", "nc.openbsd",
        "Rscript", "BASH", "perl5.36-x86_64-linux-gnu", "tclsh8.6", "sqlite3", "sort", "7z",
        "systemd-cat", "systemd-inhibit", "perf", "uclampset", "logsave", "ip", "ldd", "fakeroot-sysv", "dc",
        "file-rename", "diff3", "sdiff", "x86_64-linux-gnu-cpp-12", "x86_64-linux-gnu-gcc-ar-12",
        "x86_64-linux-gnu-nm", "gpg", "emacs-nox", "mariadb", "pdb3.11", "yt-dlp",
        "npm-cli.js", "/usr/share/nodejs/npm/bin/npx-cli.js", "pnpm.cjs", "git-shell", "git-upload-pack",
        "cargo-nextest", "pydoc3.11", "javac", "debconf", "gpgtar", "opt-14", "mkfs", "gcore", "zless",
        "gnuplot-qt", "php-fpm8.2", "python3-dbg", "node-gyp",
    ],
)  # fmt: skip
def test_programs_that_start_others_are_known(program: str) -> None:
    """Interpreters and wrappers are recognised under their versions and variants."""
    assert starts_others(program)


@pytest.mark.parametrize(
    "program",
    [
        "printf",
        "ls",
        "wc",
        "head",
        "cat",
        "tee",
        "grep",
        "sha256sum",
        "base64",
        "cp",
        "/opt/deploy",
        "id",
        "uname",
        "app.js",
        "dc-rover",
        "clang-format",
        "gpgv",
    ],
)
def test_plain_programs_are_not_taken_for_wrappers(program: str) -> None:
    """A program that runs nothing else can be allowed with any arguments."""
    assert not starts_others(program)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in (
            "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "BASH_FUNC_x", "GIT_SSH_COMMAND",
            "GIT_CONFIG_COUNT", "PYTHONPATH",
            "PYTHONSTARTUP", "PERL5LIB", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "PATH", "IFS", "SHELLOPTS",
            "PS4", "EDITOR", "PAGER",
            "LESSOPEN", "HOME", "XDG_CONFIG_HOME", "NODE_REPL_EXTERNAL_MODULE",
            "AWS_CONFIG_FILE", "TCLLIBPATH", "ERL_AFLAGS", "AWS_PAGER", "GH_EDITOR", "APT_CONFIG", "LDFLAGS",
            "LESSKEY_CONTENT", "VIMRUNTIME", "Npm_Config_Node_Options",
        )),
        *((name, False) for name in (
            "LC_ALL", "LANG", "TZ", "A", "TERM", "NO_COLOR", "TOKEN", "PATHS", "LESSON", "EDITORS",
        )),
    ],
)  # fmt: skip
def test_variables_that_inject_are_known(name: str, expected: bool) -> None:
    """Variables that make programs load or start something are recognised, and no others."""
    assert injects(name) is expected
    rule = Rule("r", Decision.ALLOW, "ops", env=frozenset({name}))
    target = Target("process.run", Effect.STATE_CHANGING, program="/x", argv=("x",), env=frozenset({name}))
    assert rule.matches(target) is not expected


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_is_known_to_start_nothing_cannot(name: str) -> None:
    """The program of this name imports nothing that starts a program or loads code, and is no link."""
    program = Path("/usr/bin", name)
    if not program.exists() or program.is_symlink():
        pytest.skip(f"{program} is not installed, or is another program here")
    assert starts_nothing(str(program))
    content = program.read_bytes()
    assert content.startswith(b"\x7fELF")
    starting = re.findall(rb"\0(exec[vl]\w*|posix_spawnp?|system|popen|v?fork|dlopen)\0", content)
    assert not starting


@pytest.mark.parametrize(
    "program",
    [
        *("/usr/local/bin/cat", "/opt/bin/cat", "cat", "/usr/bin/cat.sh", "/usr/bin/cat2", "/usr/bin/"),
        *("/usr/bin/coreutils", "/usr/bin/busybox", "/usr/bin/sort", "/usr/bin/uniq", "/usr/bin/tee"),
    ],
)
def test_what_is_not_on_the_list_may_start_others(program: str) -> None:
    """A name elsewhere, a variant, a multi-call binary and what writes files are not known to be harmless."""
    assert not starts_nothing(program)
