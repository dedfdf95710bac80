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
    awk bpftrace bpython bun busybox clojure dc deno elixir erl escript exiftool expect file-rename
    gawk gdb ghci gnuplot groovy gs guile iex ipython irb java jjs jshell julia kotlin latex lldb
    lli lua luajit lualatex luatex m4 mawk maxima mono nawk node nodejs ocaml octave osascript pdb
    pdflatex pdftex perl perldoc php pike prename pypy python r racket raku rename rscript ruby
    runghc runhaskell sbcl scala scheme scriptlive sed swipl tclsh tex toybox ts-node tsx wine wish
    xelatex zx
"""
_WRAPPERS = """
    aa-exec at batch bwrap capsh catchsegv cgexec choom chpst chronic chroot chrt cpulimit crontab
    daemonize dbus-launch dbus-run-session direnv doas eatmydata entr env fakechroot fakeroot
    fakeroot-sysv fakeroot-tcp faketime find firejail flock fstab-decode gio gosu gpg-agent
    heaptrack hyperfine ifne ionice ip ldd linux32 linux64 logsave ltrace luit memusage newgrp nice
    nohup not nsenter numactl original-awk parallel pee perf pkexec prlimit proot proxychains
    qemu-aarch64 qemu-arm qemu-x86_64 rlwrap run-parts run0 runcon runuser s6-setuidgid scalar
    schroot script sem setarch setpriv setsid setuidgid sg softlimit sotruss sshpass
    start-stop-daemon stdbuf strace su sudo sudoedit switch_root systemd-cat systemd-inhibit
    systemd-nspawn systemd-run systemd-socket-activate taskset time timeout tini torsocks trickle
    uclampset unbuffer unshare valgrind vipe watch watchexec xargs xdg-open xvfb-run
"""
_WITH_A_WAY_OUT = """
    7z 7za 7zr ansible ansible-console ansible-galaxy ansible-playbook ansible-pull ant apt apt-get
    aptitude ar aria2c aws az bazel bmake bsd-mailx bsdtar buck bundle bundler bunx c++ c89 c89-gcc
    c99 c99-gcc cargo cc clang clang++ cmake composer conda coredumpctl corepack coverage cpack cpan
    cpio cpp crictl cscope ctest ctr debuild diff3 dnf docker docker-compose dotnet dpkg
    dpkg-buildpackage dpkg-source ed elinks emacs emacs-gtk emacs-lucid emacs-nox emacsclient eslint
    ex fd fdfind flatpak ftp fzf g++ gcc gcc-ar gcc-nm gcc-ranlib gcloud gdc gem gfortran gh git
    gmake go gpg gradle gradlew groff gsutil gulp hatch helm hg hx info install invoke jed jest joe
    journalctl just kak kubectl lazygit ld less lftp links logrotate lxc-attach lynx machinectl mail
    mailx make man mariadb mc meson micro mocha more most mount msgexec msgfilter mutt mvn mvnw mypy
    mysql nano nc ncat neomutt nerdctl netcat netkit-ftp ninja nix nix-shell nm nmap nnn nox npm npx
    nvim openssl openvpn packer pacman pants pdm pg pg_wrapper pico pip pipenv pipx pnpm pnpx podman
    poetry pre-commit prove psql pulumi pylint pytest rake ranger ranlib rclone rg rollup rpm
    rpmbuild rsh rsync runc rustc rvim rye s-nail scons scp screen sdiff sftp slogin snap socat sort
    sphinx-build split sqlite ssh ssh-agent ssh-keygen svn systemctl tar tcpdump telnet terraform
    terragrunt tig tmux tnftp tofu tox troff tshark uv uvx vagrant vi view vim vimdiff vipw visudo
    vite vitest w3m waf webpack wget yarn youtube-dl yt-dlp yum zip zypper
"""
"""An option, a command of their own, a hook or a configuration file of theirs starts programs."""

_STARTS_OTHERS = _words(_SHELLS, _INTERPRETERS, _WRAPPERS, _WITH_A_WAY_OUT)

_VERSION = re.compile(r"[-.]?[0-9]+([.-][0-9]+)*[a-z]?$")
"""At the end of a name: `python3.11`, `perl5.36.0`, `gcc-12`, `awk2`."""

_TRIPLET = re.compile(r"^[a-z0-9_]+-((linux|unknown|pc|none|gnu|musl|elf|eabi)[a-z0-9_]*-)+")
"""Before the name of a compiler: `x86_64-linux-gnu-gcc`."""

_INJECTING = _words(
    """
    AWS_CONFIG_FILE BASHOPTS BASH_ENV BASH_LOADABLES_PATH BASH_XTRACEFD BROWSER
    BUNDLE_GEMFILE CC CDPATH CLASSPATH CURL_HOME CXX DBUS_SESSION_BUS_ADDRESS DOCKER_CONFIG DOCKER_HOST
    EDITOR EMACSLOADPATH ENV ERL_FLAGS ERL_LIBS EXINIT FCEDIT FPATH FZF_DEFAULT_COMMAND FZF_DEFAULT_OPTS
    GCONV_PATH GEM_HOME GEM_PATH GLOBIGNORE GNUPGHOME GOENV GOFLAGS GOROOT GOTOOLDIR GREP_OPTIONS
    GUILE_LOAD_PATH HGRCPATH HOME HOSTALIASES IFS INPUTRC JAVA_OPTS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS
    JULIA_LOAD_PATH KUBECONFIG KUBE_EDITOR LESS LESSCLOSE LESSKEY LESSKEYIN LESSOPEN LOCPATH MAKE
    MAKEFILES MAKEFLAGS MANOPT MANPAGER MAVEN_OPTS MFLAGS MYVIMRC NETRC NLSPATH NODE_OPTIONS NODE_PATH
    NODE_REPL_EXTERNAL_MODULE
    PAGER PATH PGSERVICEFILE PGSYSCONFDIR PHPRC POSIXLY_CORRECT PROMPT_COMMAND PS0 PS1 PS4 PSQLRC
    RES_OPTIONS RIPGREP_CONFIG_PATH RSYNC_CONNECT_PROG RSYNC_RSH RUSTC RUSTC_WRAPPER RUSTFLAGS R_ENVIRON
    R_LIBS R_LIBS_USER R_PROFILE R_PROFILE_USER SHELL SHELLOPTS SSH_ASKPASS SSH_AUTH_SOCK
    SSH_SK_PROVIDER SYSTEMD_EDITOR SYSTEMD_PAGER TAR_OPTIONS TCLLIBPATH TERMCAP TERMINFO TERMINFO_DIRS
    TF_CLI_CONFIG_FILE UNZIP VIMINIT VISUAL WGETRC ZDOTDIR ZIPOPT _JAVA_OPTIONS
    """
)

_INJECTING_PREFIXES = _words(
    """
    ANSIBLE_ BASH_FUNC_ CARGO_ COMPOSER_ CONDA_ DOTNET_ DYLD_ GCC_ GDK_ GIO_ GIT_ GLIBC_ GTK_ HG_ LD_
    LUA_ NPM_CONFIG_ OPENSSL_ PERL PHP_ PIP_ PYTHON QT_ RUBY SUDO_ SVN_ UV_ XDG_ npm_config_
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
