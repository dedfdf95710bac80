"""A prefix that looks like a URL admits URLs of its site and path, whoever reads them."""

from dataclasses import replace

import pytest

from tests.domain.test_override import OVERRIDE, TOUCH
from tyrum_gateway.domain.errors import InvalidRequest
from tyrum_gateway.domain.override import Pattern, derive
from tyrum_gateway.domain.policy import Bundle, Decision, Prefix, Rule, flaw, looks_like_url, near_misses

SITE = "https://api.example.org/v1/"


def admits(prefix: str, argument: str, decision: Decision = Decision.ALLOW) -> bool:
    """Ask an allow rule."""
    rule = Rule("r", decision, "ops", program="/usr/bin/printf", argv=(Prefix(prefix),))
    return rule.matches(replace(TOUCH, program="/usr/bin/printf", argv=("printf", argument)))


@pytest.mark.parametrize(
    ("prefix", "argument"),
    [
        (SITE, SITE),
        (SITE, "https://api.example.org/v1/a/b?c=d&e#f"),
        (SITE, "HTTPS://API.Example.ORG:443/v1/a"),
        (SITE, "https://api.example.org./v1/a"),
        (SITE, "https://api.example.org/%76%31/a"),
        (SITE, "https://api.example.org/v1/./a"),
        (SITE, "https://api.example.org/v1/a%20b"),
        ("https://api.example.org", "https://api.example.org/anything?x"),
        ("https://api.example.org", "https://api.example.org"),
        ("https://api.example.org:8443/", "https://api.example.org:8443/a"),
        ("https://api.example.org/q?a=", "https://api.example.org/q?a=b"),
        ("--url=https://api.example.org/", "--url=https://api.example.org/a"),
        ("https://", "https://other.example/a"),
        ("https:", "https://other.example/a"),
        ("http://[::1]:80/", "http://[::1]/a"),
        ("file:///srv/data/", "file:///srv/data/a"),
    ],
)
def test_a_url_of_the_site_is_admitted(prefix: str, argument: str) -> None:
    """Spelling of scheme, host, port and escapes makes no difference, and queries may follow a path."""
    assert admits(prefix, argument)
    assert admits(prefix, argument, Decision.DENY)


@pytest.mark.parametrize(
    ("prefix", "argument"),
    [
        ("https://api.example.org", "https://api.example.org.evil.example/"),
        ("https://api.example.org", "https://api.example.org@evil.example/"),
        ("https://api.example.org", "https://api.example.org:x@evil.example/"),
        ("https://api.example.org", "https://api.example.org:8443/"),
        ("https://api.example.org", "https://api.example.org{,.evil.example}/"),
        ("https://api.example.org", "https://api.example.org\\@evil.example/"),
        ("https://api.example.org/", "http://api.example.org/"),
        ("https://", "https://user@other.example/"),
        ("https://", "https:///a"),
        ("https:", "https:/a"),
        ("https:", "https:other.example"),
        ("--url=https://api.example.org/", "--proxy=https://api.example.org/a"),
        ("https://api.example.org/q?a=", "https://api.example.org/q/x?a=b"),
        *(
            (SITE, SITE + rest)
            for rest in (
                *("../admin", "a/../../admin", "%2e%2e/admin", "..%2fadmin", "%2E./admin", "a%2fb", "a%5cb"),
                *("a%252e", "a%00", "a%0d%0aHost:x", "{a,../admin}", "[1-9]", "a b", "a\tb", "a\nb", "a\x7f"),
                *("a\\b", "a%", "a%zz", "ä", "a\u2028", "%7b"),
            )
        ),
    ],
)
def test_what_another_reader_may_take_elsewhere_is_not_admitted(prefix: str, argument: str) -> None:
    """Another host behind the same text, other paths behind dots, and what curl expands: all ask."""
    assert not admits(prefix, argument)
    if argument.startswith(prefix):
        assert admits(prefix, argument, Decision.DENY), "a deny reaches what an allow does not"


@pytest.mark.parametrize(
    "prefix",
    ["https://u@h/", "https://h/{a", "https://h/%2e", "https://h/a/../", "https://h/%", "http://h/ä"],
)
def test_a_prefix_that_no_url_begins_with_is_refused(prefix: str) -> None:
    """An operator is told why it admits nothing, in a rule and in a standing permission."""
    assert looks_like_url(prefix)
    assert flaw(prefix)
    target = replace(TOUCH, program="/usr/bin/printf", argv=("printf", prefix))
    with pytest.raises(InvalidRequest, match="prefix that no URL may begin with"):
        derive(target, Pattern((Prefix(prefix),)), override_id=OVERRIDE, author="Alice")


def test_a_standing_permission_for_urls_is_compared_as_one() -> None:
    """A pattern admits its site alone."""
    target = replace(TOUCH, program="/usr/bin/printf", argv=("printf", SITE))
    rule = derive(target, Pattern((Prefix(SITE),)), override_id=OVERRIDE, author="Alice")
    assert rule.matches(replace(target, argv=("printf", SITE + "a")))
    assert not rule.matches(replace(target, argv=("printf", SITE + "%2e%2e/admin")))


def test_the_nearest_rule_says_what_a_url_must_be() -> None:
    """What explains a call names the argument and what the rule wants of it."""
    rule = Rule("site", Decision.ALLOW, "ops", program="/usr/bin/printf", argv=(Prefix(SITE),))
    target = replace(TOUCH, program="/usr/bin/printf", argv=("printf", SITE + "{a}"))
    (miss,) = near_misses(Bundle("b", (rule,)), target)
    assert f"the rule wants a URL beginning `{SITE}`, without user info" in miss.why


@pytest.mark.parametrize("prefix", ["src/", "--id=", "://", "1://", "=://", "https", "C:"])
def test_other_prefixes_are_compared_as_text(prefix: str) -> None:
    """Paths and options begin as written."""
    assert not looks_like_url(prefix)
    assert admits(prefix, prefix + "x{}")


def test_a_long_argument_is_compared_at_once() -> None:
    """No length of letters, dots or escapes makes the comparison slow: it is linear, or this never ends."""
    for argument in (
        "a" * 2_000_000,
        "a" * 2_000_000 + "://",
        SITE + "%41/../" * 300_000,
        SITE + "{" * 2_000_000,
    ):
        admits(SITE, argument)
