"""Pieces of bash that do more than they seem to, or seem to do more than they do.

Invariant: nothing here names a file outside the scratch root, a process or the network, so that a text that
escapes does no harm even where it runs unconfined.
"""

PREFIXES = (
    "X=1 ", "PATH=. ", "PATH=dir:$PATH ", "LD_PRELOAD=./x ", "BASH_ENV=a.txt ", "IFS=w ", "a[0]=1 ",
    "a+=1 ", "a=(1) ", "X=$(wipe) ", "X=`wipe` ", "X= ", "X='a b' ", "! ", "!", "time ", "time -p ",
    "coproc ", "coproc N ", "exec ", "exec -a status ", "command ", "command -p ", "builtin ", "eval ",
    "env ", "env X=1 ", "env -S ", "sudo ", "xargs ", "timeout 1 ", "nice ", "bash -c ", "sh -c ",
    "python3 -c ", "git -c core.pager=wipe ", ">made ", ">>made ", "<a.txt ", "2>made ", "&>made ", "2>&1 ",
    "{fd}>made ", "5<a.txt ", "\\\n", "\\\r\n", "then ", "do ", "if ", "{ ", "( ", "(", "{", "((", "[[ ",
    "[ ", "\\", "'' ", '"" ', "$_ ", "$0 ", "$X ", "$(wipe) ", "`wipe` ", "* ", "./", "dir/", "../", "~/",
    "~+/", "//", "-", "--", "+", "@", "%", ":", ". ", "source ", ": ", ": && ", "true && ", "wipe; ",
    "wipe && ", "wipe || ", "wipe | ", "echo x | ", "echo x; ", "test a && ", "test -v 'a[$(wipe)]' && ",
    "cd dir; ", "cd dir && ", "set -x; ", "trap wipe EXIT; ", "alias show=wipe\n", "hash -p ./show show; ",
    "export PATH=.; ", "# x\n", "#", "\n", "\t", " ", "\r", "\v", "\f", "\u00a0", "\u2028", "\ufeff",
    "\u200b", "$'", '$"', "function ", "select x in a; do ", "let a=1 ", "declare a=1 ", "local ",
    "return ", "exit; ", "shopt -s expand_aliases\nalias show=wipe\n", "unset PATH; ", "readonly PATH=.; ",
    "printf -v 'a[$(wipe)]' x; ", "enable -n echo; ", "ulimit -n 9; ", "umask 0; ",
)  # fmt: skip
"""Before a command."""

SUFFIXES = (
    " >made", " >>made", ">made", " >|made", " <>made", " &>made", " &>>made", " >&made", " 2>made",
    " 2>&1", " >&2", " <a.txt", "<a.txt", " <&-", " >&-", " 3>made", " {fd}>made", " <<E\nx\nE",
    " <<E\n$(wipe)\nE\n", " <<'E'\nx\nE\n", " <<-E\n\tx\n\tE\n", " <<<x", " <<<$(wipe)", "&", " &",
    " & wipe", "& wipe", "; wipe", ";wipe", " && wipe", "&&wipe", " || wipe", "||wipe", " | wipe", "|wipe",
    " |& wipe", "|&check", " |& check", "\nwipe", "\n\nwipe\n", "\r\nwipe", "\rwipe", "\vwipe", "\fwipe",
    "\u2028wipe", "\u0085wipe", "\x00wipe", "\x00; wipe", " #x", " # x", "; # x", "#x", " # x\nwipe",
    " \\# x", " '#' x", "\\\nwipe", " \\\nwipe", "\\\n; wipe", " $(wipe)", " `wipe`", " <(wipe)",
    " >(wipe)", ' "$(wipe)"', ' "`wipe`"', " '$(wipe)'", " '`wipe`'", " \\$(wipe)", ' "\\$(wipe)"',
    ' "\\`wipe\\`"', " $((1+1))", " $[1+1]", " $((a[$(wipe)]))", " ${x:-y}", " ${x:=y}", " ${x:-$(wipe)}",
    " ${x@P}", " ${!x}", " ${#x}", " ${x/a/b}", " ${PATH%%:*}", " $x", " $@", " $*", " $?", " $$", " $!",
    " $-", " $#", " $1", ' "$x"', ' "$@"', " '$x'", " \\$x", " $", " a$", ' "$"', ' "a$ b"', " *", " *.txt",
    " ?.txt", " [ab].txt", " [!a].txt", " a*", " '*'", ' "*"', " \\*", " {a,b}", " {1..3}", " {a}", " {a,b",
    " {}", " a{,b}", " x{a,b}y", " '{a,b}'", " {a\\,b}", " ~", " ~/a", " ~+", " ~-", " ~nobody", " a=~",
    " a=~/b", " --x=~", " a:~", " '~'", " \\~", " a~", " !(a)", " @(a.txt|b)", " +(a)", " $'a'",
    " $'\\x41'", " $'a\\nb'", " $'\\''; wipe", ' $"a"', ' $"a$(wipe)"', " a\\ b", " a\\b", " a\\", " \\",
    " !!", " !$", " ^a^b", " [[ x ]]", " ((x))", ";;", ";&", " ;; wipe", " }", " )", "}", ")", "'", '"',
    "`", " $(", " ${", " $((", " <(", " '", ' "', " '''", ' """', " ''", ' ""', " ''''", " a'b'\"c\"d",
    " 'a\nb'", ' "a\nb"', " 'a'\nwipe", ' "a\\\nb"', " a\\\nb", " 'a\\\nb'", ' "a\\b"', ' "\\\\"', ' "\\""',
    ' "\\""; wipe', " '\\'; wipe", " '\\''", ' "\\$x"', ' "!"', " !", " -- x", " -", " if", " then wipe",
    " && if", " && { wipe; }", " && (wipe)", " && !", " && ! check", " && time check", "; echo x",
    " && echo x", " | echo x", " && test a", " | test a", " && [ a ]", " && :", " && .", " && cd dir",
    " && cd dir && show", " && X=1", " && X=1 check", " &&", " ||", " |", " ;", "; ;", " && && show",
    " ; ; show", " | | show", " &; show", "&&\ncheck", "||\ncheck", "|\ncheck", "\n| check", "\n&& check",
    " |\\\n check", " &\\\n& check", " |\\\n| check", "\\\n", " = x", "=x", "()", "() { wipe; }",
    " () { wipe; }", "[0]=1", "+=x", "\t", " \t ", "\r", " \r", " \v", " \f", "\u00a0x", " \u00a0 x",
    "\u200b", "\ufeff", " \x01", " \x01x", " \x7f", " \x01\x7f", " '\x01'", ' "\x7f"', " \x1b", " \x08",
    " \u202ex", " \u0430", " \ud800", " \U0001f600", " é", " e\u0301", "\u037e wipe", "\uff1b wipe",
    "\uff06\uff06 wipe", " \uff5c wipe", " \uff04(wipe)", " \u2018x\u2019", " \u201cx\u201d",
    " \u2033x\u2033",
)  # fmt: skip
"""After a command."""

WHOLE = (
    "f() { wipe; }; f", "function f { wipe; }; f", "show() { wipe; }\nshow", "show () { wipe; }; show",
    "function show { wipe; }\nshow a", "alias show=wipe\nshow", "if show; then check; fi",
    "for x in a b; do show $x; done", "for x in a; do show x; done", "for ((;;)); do show; break; done",
    "while check; do show; done", "until show; do check; done", "case a in a) show;; esac",
    "case a in (a) show;; esac", "select x in a; do show; done", "{ show; }", "(show)", "( show )",
    "{ show\n}", "((1))", "((a[$(wipe)]))", "[[ a ]]", "[[ -v a[$(wipe)] ]]", "[[ a == $(wipe) ]]",
    "[ -v 'a[$(wipe)]' ]", "test -v 'a[$(wipe)]'", "test a", "test a = a", "echo hi", "echo a; echo b",
    "echo a && show", "show && echo a", "show | echo", "echo a | show", '"echo" a', "e''cho a | show",
    "\\echo a | show", "printf -v 'a[$(wipe)]' x", "read 'a[$(wipe)]' <<< x", "trap wipe EXIT",
    "trap wipe DEBUG; show", "mapfile -C wipe -c 1 a <a.txt", "declare 'a[$(wipe)]=1'",
    "let 'a[$(wipe)]=1'", "let a=1", "declare -x X=1; show", "export X=1; show", "set -- a; show",
    "set -x; show", "hash -p ./show show; show", ". ./a.txt", "source a.txt", "cd dir; show",
    "pushd dir && show", "unset PATH; show", "exec show", "exec 2>made", "exec >made; show", "coproc show",
    "coproc { show; }", "time show", "time -p show", "time", "!", "! show", "! ! show", "show &",
    "show & check", "show & wait", "wait; show", "X=1", "X=1 Y=2", "X=1 show", "X=$(wipe)", "X=1; show",
    "a=(1 2)", "a[0]=1", "a=([0]=$(wipe))", "<<E show\nE", "<<<a show", ">made", "<a.txt", "$(show)",
    "`show`", "$'show'", '$"show"', "$show", "${x:-show}", "s\\how", "s'h'ow", '"show"', "'show'",
    "s\"h\"o'w'", "\\show", "sho\\\nw", "show\\\n a", "show \\\n a", "~/show", "./show", "../show",
    "dir/show", "show/", "*", "?how", "[s]how", "{show,a}", "{show,}", "{show}", "sh{o,}w", "SHOW",
    "\u0455how", "\uff53how", "show\u0301", "\ufeffshow", "\u00a0show", "show\u00a0a", "show\u2003a", "",
    " ", "\n", ";", "&", "|", "#", "# show", "#\nshow", "show #", "show#", "\\", "'", '"', "''", '""',
    "'' show", '"" show', "' show'", '"show "', '"show a"', "'show a' b", "''show", 'show""',
    "show --force", "show '--force'", "show --fo''rce", "show -\\-force", 'show "--force"',
    "show --force; show", "show; show --force", "list -l", "list -l a b", "list '-l' a", "list -l ''",
    "list", "status", "status ''", "status a", "status\n", "status;", "status ;", "fetch",
    "fetch --dry-run a", "fetch --dry-ru", "pick --id=", "pick --id=a --id=b", "pick --id= a",
    "pick '--id=a b'", "env show", "sudo show", "xargs show", "timeout 1 show", "nice show", "bash -c show",
    "sh -c 'show'", "python3 -c show", "git status", "git -c alias.x='!wipe' x", "wipe", "wipe | show",
    "show | wipe", "show|check|status", "if", "then", "fi", "do", "done", "case", "in", "esac", "while",
    "until", "for", "function", "select", "{", "}", "[[", "]]", "((", "))", "(", ")", "if show",
    "'if' show", "\\if show", '"time" show', "\\time show", "show then", "show; then", "show; }", "show )",
    "!show", "! wipe", "'!' show", "show !", "show !a", "shopt -s extglob; show", "enable -n echo; echo",
    "command show", "builtin echo", "eval show", "eval 'wipe'", ":", ": show", "true", "true && show",
    "false || show", ".", "..", "[", "]", "[ a ]", "-", "--", "-show", "%1", "fg", "%", "show\0", "\0show",
    "show \x01", "\x01show", "show \x7f", "show\x7f", "s\x01how", "show '\x01'", "show a\x01b", "show \r",
    "show\r", "\rshow", "show\r\ncheck", "show\r\n", "show\vcheck", "show a\vb", "show a\fb", "show \ud800",
    "show a=b", "a=b show", "a-b=c", "1a=b", "a+=b", "show a+=b", "a[1", "a[1]", "'a'=b", "\\a=b", 'a"b"=c',
    "a\\=b", "show >", "show <", "show |", "show &&", "show ||", "show ;;", "&& show", "|| show", "| show",
    "; show", "& show", "show 2", "show 2 >made", "show 2>made", "show a>made", "show 2'>'made",
    "show \\>made", "show '>made'",
)  # fmt: skip
"""Texts of their own."""

SPECIAL = "'\"\\`$(){}[]<>|&;#!~*?=,.-+^%@:/ \t\n\r\v\f\0\x01\x02\x07\x08\x1b\x7f0123456789aswxE_" + (
    "\u0080\u0085\u00a0\u00ad\u00e9\u0301\u0430\u0455\u037e\u2003\u2028\u2029\u200b\u200e\u202e\u2060\u3000"
    "\ufeff\uff04\uff06\uff1b\uff5c\uff1e\ufffd\U0001f600\ud800\udcff"
)
"""Characters that edits put in."""

TOKENS = (
    "show", "check", "list", "status", "fetch", "pick", "echo", "test", "wipe", "-l", "--dry-run", "--id=",
    "--force", "a", "b", "a.txt", "dir", "X=1", "&&", "||", ";", "|", "|&", "&", "\n", "(", ")", "{", "}",
    "[[", "]]", "((", "))", "$(", "`", "${", "$", "'", '"', "\\", "<", ">", ">>", "<<", "<<<", "<<-", "<(",
    ">(", "2>", ">&", "!", "time", "if", "then", "else", "elif", "fi", "for", "in", "do", "done", "while",
    "case", "esac", ";;", "function", "coproc", "*", "?", "[a]", "{a,b}", "~", "#", "=", "+=", "()", "$'",
    '$"', "\\\n", "\r", "\t", "E", "$x", "$((", "@(", "!(",
)  # fmt: skip
"""What a text is made of that follows no grammar."""
