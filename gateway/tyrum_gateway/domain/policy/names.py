"""Names that decide what else runs: programs that start others, and variables that programs obey.

Invariant: these lists only make things stricter. A program that is not on them may still start others; only
of those in `harmless` is it known that they do not.
"""

import re
from pathlib import PurePosixPath


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


_SHELLS = "ash bash csh dash elvish fish ksh ksh93 mksh nu osh pwsh rbash rc sh tcsh xonsh yash zsh"
_INTERPRETERS = """
    asciidoctor awk bpftrace bpython bun busybox clojure dc deno duckdb elixir erl escript exiftool
    expect file-rename gawk gdb ghci gnuplot groovy gs guile iex ipython irb java jconsole jdb jjs
    jrunscript jshell julia kotlin ksh2020 latex lein libreoffice lldb lli lua luajit lualatex
    luatex m4 magick mawk maxima mongo mongosh mono mpost nawk node nodejs ocaml octave octave-cli
    opt optscript osascript pdb pdflatex pdftex perl perldoc php pike prename pydoc pygmentize pypy
    python r racket raku rename rscript ruby runghc runhaskell sage sbcl sbt scala scalac scheme
    scriptlive scsh sed soffice swipl tclsh tex texlua toybox ts-node tsx wine wish xelatex zx
"""
_WRAPPERS = """
    aa-exec abduco agetty at autossh batch bear busctl bwrap byobu capsh catchsegv ccache cgexec
    choom chpst chronic chroot chrt concurrently cpulimit crontab cross-env daemonize dbus-daemon
    dbus-launch dbus-run-session dbus-send dbus-update-activation-environment deb-systemd-invoke
    debconf debconf-apt-progress direnv distcc doas dotenv dtach eatmydata entr env fakechroot
    fakeroot fakeroot-sysv fakeroot-tcp faketime find firejail flock fstab-decode gcore
    gdb-add-index gdbtui gdbus gio gnome-terminal gosu gpg-agent gprofng heaptrack hyperfine icecc
    ifne init invoke-rc.d ionice ip kernel-install kitty konsole ldd linux32 linux64 logsave ltrace
    luit memusage mosh newgrp nice nohup not nsenter numactl original-awk parallel pee perf
    pg_virtualenv pkexec prlimit proot proxychains qemu-aarch64 qemu-arm qemu-x86_64 rlwrap rtcwake
    run-mailcap run-parts run0 runcon runuser s6-setuidgid scalar scan-build sccache schroot script
    sem sensible-browser sensible-editor sensible-pager service setarch setpriv setsid setuidgid sg
    softlimit sotruss ssh-argv0 ssh-copy-id sshpass start-stop-daemon startx stdbuf strace stunnel
    su sudo sudoedit switch_root systemd systemd-cat systemd-inhibit systemd-mount systemd-nspawn
    systemd-run systemd-socket-activate taskset tc tcpserver time timeout tini tmate torsocks
    trickle uclampset unbuffer unshare valgrind vgdb vipe watch watchexec websocat
    x-terminal-emulator xargs xdg-open xinetd xinit xterm xvfb-run zellij
"""
_WITH_A_WAY_OUT = """
    7z 7za 7zr aclocal alembic ansible ansible-console ansible-galaxy ansible-playbook ansible-pull
    ant apt apt-get aptitude ar aria2c autoconf autom4te automake autoreconf aws az babel bat bazel
    behave bjam bmake borg bsd-mailx bsdtar buck bugpoint bundle bundler bunx bzless bzmore c++ c89
    c89-gcc c99 c99-gcc cargo cc celery clang clang++ clang-repl clang-tidy cmake composer conda
    coredumpctl corepack coverage cpack cpan cpanm cpio cpp cppcheck crictl cscope ctest ctr
    cucumber cypress debuild delta diff3 django-admin dnf docker docker-compose dotnet doxygen dpkg
    dpkg-buildpackage dpkg-reconfigure dpkg-source dvips ed elinks emacs emacs-gtk emacs-lucid
    emacs-nox emacsclient eslint ex exim fd fdfind fetchmail flake8 flask flatpak flit fsck ftp fzf
    g++ gcc gcc-ar gcc-nm gcc-ranlib gcloud gdc gem gfortran gh gio-querymodules git gmake go gold
    gpg gpg-connect-agent gpg-wks-server gpg-zip gpgcompose gpgconf gpgsm gpgtar gpic gradle gradlew
    groff grog grunt gsutil gulp gunicorn hatch helm hg hx ifdown ifup info install invoke jarsigner
    javac javadoc jcmd jed jekyll jest jlink joe journalctl jpackage jupyter just kak karma keytool
    kotlinc kpt kubectl kustomize latexmk lazygit ld lerna less lesspipe lftp libtool links
    lint-staged llc lld locust logrotate luigi lxc-attach lynx machinectl mail maildrop mailx make
    man mariadb mc meson micro mkdocs mkfs mocha more most mount msfconsole msgexec msgfilter mutt
    mvn mvndebug mvnw mypy mysql nano nc ncat neomutt nerdctl netcat netkit-ftp ninja nix nix-shell
    nm nmap nnn nodemon nose2 nox npm npx nroff nuxt nvim nx openconnect openssl openvpn packer
    pacman pandoc pants pdm perlbug perlcritic perlthanks pg pg_ctlcluster pg_wrapper phpstan
    phpunit pic pico pip pipenv pipx playwright pm2 pnpm pnpx podman poetry pppd pre-commit prettier
    procmail protoc prove psalm psftp psql pulumi puma puppet pylint pyproject-build pytest rails
    rake ranger ranlib rclone rg rollup rpm rpmbuild rsh rspec rsync rubocop runc rustc rustup rvim
    rye s-nail salt-call scons scp scrapy screen sdiff sendmail sftp skaffold slogin snap socat sort
    sphinx-build split sqlite sqlplus ssh ssh-add ssh-agent ssh-keygen stylelint svn systemctl tar
    tcpdump telnet terraform terragrunt texi2dvi texi2pdf tig tmux tnftp tofu tox troff tshark tsup
    tup twine unison update-ca-certificates usql uv uvicorn uvx vagrant vi view vim vimdiff vimtutor
    vipw visudo vite vitest w3m waf webpack wget wp xdvi xmake xzless xzmore yarn youtube-dl yt-dlp
    yum zip zless zmore zstdless zypper
"""
"""An option, a command of their own, a hook or a configuration file of theirs starts programs."""

_STARTS_OTHERS = _words(_SHELLS, _INTERPRETERS, _WRAPPERS, _WITH_A_WAY_OUT)

_LANGUAGES = frozenset(name for name in _words(_SHELLS, _INTERPRETERS) if len(name) > 2)
"""Names that a builder's or a part's name may follow: `gnuplot-qt`, `php-fpm8.2`, `python3-dbg`."""

_VERSION = re.compile(r"[-.]?[0-9]+([.-][0-9]+)*[a-z]?$")
"""At the end of a name: `python3.11`, `perl5.36.0`, `gcc-12`, `awk2`."""

_FAMILIES = ("ansible-", "cargo-", "git-", "kubectl-", "ld-linux", "ld-musl", "ld.so")
"""What names begin with that are parts or plugins of such a program: `git-shell`, `cargo-nextest`."""

_OF_NODE = re.compile(r"(-cli)?\.[cm]?js$")
"""At the end of the file behind a command of Node's: `npm-cli.js`, `pnpm.cjs`."""

_TRIPLET = re.compile(r"^[a-z0-9_]+-((linux|unknown|pc|none|gnu|musl|elf|eabi)[a-z0-9_]*-)+")
"""Before the name of a compiler: `x86_64-linux-gnu-gcc`."""

_INJECTING = _words(
    """
    APT_CONFIG AR AS AWKLIBPATH AWKPATH AWS_CONFIG_FILE BASHOPTS BASH_ENV BASH_LOADABLES_PATH
    BASH_XTRACEFD BROWSER BUNDLE_GEMFILE CC CDPATH CFLAGS CLASSPATH CPP CPPFLAGS CURL_HOME CXX
    CXXFLAGS DBUS_SESSION_BUS_ADDRESS DOCKER_CONFIG DOCKER_HOST EDITOR EMACSDATA EMACSLOADPATH
    EMACSPATH ENV ERL_FLAGS ERL_LIBS EXINIT FC FCEDIT FPATH FZF_DEFAULT_COMMAND FZF_DEFAULT_OPTS
    GCONV_PATH GEM_HOME GEM_PATH GLOBIGNORE GNUPGHOME GO GOBIN GOENV GOFLAGS GOPATH GOROOT
    GOTOOLCHAIN GOTOOLDIR GREP_OPTIONS GUILE_LOAD_PATH GVIMINIT HGRCPATH HOME HOSTALIASES IFS
    INPUTRC JAVA_HOME JAVA_OPTS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS JULIA_LOAD_PATH KRB5_CONFIG
    KUBECONFIG KUBE_EDITOR LADSPA_PATH LD LDFLAGS LESS LESSCLOSE LESSEDIT LESSKEY LESSKEYIN LESSOPEN
    LOCPATH LYNX_CFG MAILCAPS MAILRC MAKE MAKEFILES MAKEFLAGS MANOPT MANPAGER MANROFFOPT MAVEN_OPTS
    MFLAGS MYVIMRC NETRC NLSPATH NODE_OPTIONS NODE_PATH NODE_REPL_EXTERNAL_MODULE OCAMLPATH PAGER
    PATH PGSERVICEFILE PGSYSCONFDIR PHPRC POSIXLY_CORRECT PROMPT_COMMAND PS0 PS1 PS4 PSQLRC
    RES_OPTIONS RIPGREP_CONFIG_PATH RSYNC_CONNECT_PROG RSYNC_RSH RUSTC RUSTC_WRAPPER RUSTDOC
    RUSTFLAGS R_ENVIRON R_ENVIRON_USER R_LIBS R_LIBS_USER R_PROFILE R_PROFILE_USER SASL_CONF_PATH
    SASL_PATH SCREENRC SHELL SHELLOPTS SSH_ASKPASS SSH_AUTH_SOCK SSH_SK_PROVIDER SYSTEMD_EDITOR
    SYSTEMD_LESS SYSTEMD_PAGER TAR_OPTIONS TCLLIBPATH TCL_LIBRARY TERMCAP TERMINFO TERMINFO_DIRS
    TEXINPUTS TF_CLI_CONFIG_FILE TK_LIBRARY TOPRC UNZIP VIM VIMINIT VIMRUNTIME VISUAL WGETRC ZDOTDIR
    ZIPOPT _JAVA_OPTIONS
    """
)

_INJECTING_PREFIXES = _words(
    """
    ANSIBLE_ ANT_ BASH_FUNC_ BUN_ CARGO_ CMAKE_ COMPOSER_ CONDA_ DENO_ DOTNET_ DPKG_ DYLD_ ELIXIR_
    ERL_ GCC_ GDK_ GHC_ GIO_ GIT_ GLIBC_ GRADLE_ GST_ GTK_ GUILE_ HG_ JDK_ JULIA_ LD_ LESSKEY LUA_
    MAGICK_ MAVEN_ NVIM_ OPENSSL_ P11_KIT_ PERL PHP_ PIP_ PYTHON QT_ RUBY RUSTUP_ SSH_ SUDO_ SVN_
    TEXMF TS_NODE_ UV_ XDG_ YARN_
    """
)

_INJECTING_ENDS = ("PAGER", "EDITOR", "BROWSER", "ASKPASS", "_PRELOAD")
"""Of names that many programs have of their own: `AWS_PAGER`, `GH_EDITOR`."""


def starts_others(program: str) -> bool:
    """Tell whether a program is known to run what its arguments, input or configuration name.

    Args:
        program: Resolved path or plain name; a version or variant (`python3.11`, `vim.tiny`) is seen through.
    """
    full = PurePosixPath(program).name.lower()
    name = _TRIPLET.sub("", full)
    stem = name.partition(".")[0]
    candidates = {name, stem, _VERSION.sub("", name), _VERSION.sub("", stem), _OF_NODE.sub("", name)}
    language = _VERSION.sub("", name.partition("-")[0])
    return full.startswith(_FAMILIES) or language in _LANGUAGES or not candidates.isdisjoint(_STARTS_OTHERS)


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
    return (
        name in _INJECTING
        or name.startswith(tuple(_INJECTING_PREFIXES))
        or name.endswith(_INJECTING_ENDS)
        # Npm takes its own in any case.
        or name.lower().startswith("npm_config_")
    )
