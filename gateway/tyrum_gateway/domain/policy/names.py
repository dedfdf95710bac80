"""Names that decide what else runs: programs that start others, and variables that programs obey.

Invariant: these lists only make things stricter. A program that is not on them may still start others; that
is why an allow names its program, and why somebody answers for it.
"""

import re
from pathlib import PurePosixPath


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


_SHELLS = "ash bash csh dash elvish fish ksh ksh93 mksh nu osh pwsh rbash rc sh tcsh xonsh yash zsh"
_INTERPRETERS = """
    awk bpython bun busybox clojure deno elixir erl escript expect gawk gdb ghci groovy guile iex
    ipython irb java jjs jshell julia kotlin lldb lua luajit m4 mawk mono nawk node nodejs ocaml octave
    osascript perl php pike pypy python r racket raku rscript ruby runghc runhaskell sbcl scala scheme
    sed swipl tclsh toybox ts-node tsx wine wish zx
"""
_WRAPPERS = """
    at batch bwrap capsh chpst choom chroot chrt cpulimit crontab daemonize dbus-launch dbus-run-session
    doas eatmydata entr env fakechroot fakeroot faketime find firejail flock gosu ionice linux32 linux64
    ltrace nice nohup nsenter numactl original-awk parallel pkexec prlimit proot proxychains run-parts
    run0 runcon runuser s6-setuidgid script setarch setpriv setsid setuidgid sg softlimit sshpass
    start-stop-daemon stdbuf strace su sudo sudoedit systemd-run taskset time timeout tini torsocks
    trickle unbuffer unshare valgrind watch watchexec xargs xvfb-run
"""
_WITH_A_WAY_OUT = """
    7z 7za 7zr ansible ansible-playbook ant apt apt-get aptitude bazel bmake bsdtar bundle bundler c++
    cargo cc clang clang++ cmake composer conda cpan cpio crictl ctest ctr dnf docker docker-compose
    dotnet dpkg ed emacs emacsclient ex fd fdfind flatpak fzf g++ gcc gem gh git gmake go gradle gradlew
    helm hg info install invoke journalctl just kubectl ld less lftp lxc-attach machinectl mail mailx
    make man meson more most mount mutt mvn mvnw mysql nano nc ncat nerdctl netcat ninja nix nix-shell
    nmap npm npx nvim openssl pacman pg pico pip pipenv pipx pnpm pnpx podman poetry psql pytest rake rg
    rpm rsh rsync runc rustc rvim scp screen sftp slogin snap socat sort split sqlite ssh ssh-agent
    ssh-keygen svn systemctl tar tcpdump telnet terraform tmux tox uv uvx vagrant vi view vim vimdiff
    vipw visudo wget yarn yum zip zypper
"""
"""An option, a command of their own, a hook or a configuration file of theirs starts programs."""

_STARTS_OTHERS = _words(_SHELLS, _INTERPRETERS, _WRAPPERS, _WITH_A_WAY_OUT)

_VERSION = re.compile(r"[-.]?[0-9]+([.-][0-9]+)*[a-z]?$")
"""At the end of a name: `python3.11`, `perl5.36.0`, `gcc-12`, `awk2`."""

_TRIPLET = re.compile(r"^[a-z0-9_]+-((linux|unknown|pc|none|gnu|musl|elf|eabi)[a-z0-9_]*-)+")
"""Before the name of a compiler: `x86_64-linux-gnu-gcc`."""

_INJECTING = _words(
    """
    BASHOPTS BASH_ENV BASH_LOADABLES_PATH BASH_XTRACEFD BROWSER CC CDPATH CLASSPATH CURL_HOME CXX
    DBUS_SESSION_BUS_ADDRESS DOCKER_HOST EDITOR EMACSLOADPATH ENV EXINIT FCEDIT FPATH
    FZF_DEFAULT_COMMAND FZF_DEFAULT_OPTS GCONV_PATH GEM_HOME GEM_PATH GLOBIGNORE GOFLAGS GREP_OPTIONS
    HGRCPATH HOME HOSTALIASES IFS INPUTRC JAVA_OPTS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS KUBECONFIG LESS
    LESSCLOSE LESSKEY LESSKEYIN LESSOPEN LOCPATH MAKEFILES MAKEFLAGS MANOPT MANPAGER MAVEN_OPTS MFLAGS
    MYVIMRC NETRC NLSPATH NODE_OPTIONS NODE_PATH PAGER PATH PHPRC POSIXLY_CORRECT PROMPT_COMMAND PS0 PS1
    PS4 RES_OPTIONS RIPGREP_CONFIG_PATH RSYNC_CONNECT_PROG RSYNC_RSH RUSTC RUSTC_WRAPPER RUSTFLAGS
    R_ENVIRON R_PROFILE SHELL SHELLOPTS SSH_ASKPASS SSH_AUTH_SOCK SYSTEMD_EDITOR SYSTEMD_PAGER
    TAR_OPTIONS TERMCAP TERMINFO TERMINFO_DIRS UNZIP VIMINIT VISUAL WGETRC ZDOTDIR ZIPOPT _JAVA_OPTIONS
    """
)

_INJECTING_PREFIXES = _words(
    """
    BASH_FUNC_ CARGO_ COMPOSER_ CONDA_ DOTNET_ DYLD_ GCC_ GDK_ GIO_ GIT_ GLIBC_ GTK_ HG_ LD_ LUA_
    NPM_CONFIG_ OPENSSL_ PERL PHP_ PIP_ PYTHON QT_ RUBY SUDO_ SVN_ UV_ XDG_ npm_config_
    """
)


def starts_others(program: str) -> bool:
    """Tell whether a program is known to run what its arguments, input or configuration name.

    Args:
        program: Resolved path or plain name; a version or variant (`python3.11`, `vim.tiny`) is seen through.
    """
    full = PurePosixPath(program).name.lower()
    name = _TRIPLET.sub("", full)
    stem = name.partition(".")[0]
    candidates = {name, stem, _VERSION.sub("", name), _VERSION.sub("", stem)}
    return full.startswith(("ld-linux", "ld-musl", "ld.so")) or not candidates.isdisjoint(_STARTS_OTHERS)


def called_by_its_name(program: str, argv0: str) -> bool:
    """Tell whether `argv[0]` says no more than which program it is: its plain name or its real path.

    By another name some programs choose what they do; and a path of the caller's own, which links to the
    program, is where some look for what they load, as an interpreter does for its library.

    Args:
        program: Resolved path.
        argv0: As the call has it; where `/bin` is a link to `/usr/bin`, the shorter path counts as real.
    """
    return argv0 in {PurePosixPath(program).name, program, program.removeprefix("/usr")}


def injects(name: str) -> bool:
    """Tell whether an environment variable can make programs load or start what it names."""
    return name in _INJECTING or name.startswith(tuple(_INJECTING_PREFIXES))
