"""Who may see a passage, and when it holds: decided by hand."""

from __future__ import annotations

import pytest

from ragx.errors import ConfigError
from ragx.filters import PassageFilter
from ragx.records import Passage


def passage(acl: tuple[str, ...] = (), valid_from: str | None = None, valid_to: str | None = None) -> Passage:
    return Passage("a", "1", "0", "", "text", acl=acl, valid_from=valid_from, valid_to=valid_to)


@pytest.mark.parametrize(
    ("asker", "groups", "seen"),
    [
        (None, ("staff",), True),
        ((), (), True),
        ((), ("staff",), False),
        (("staff",), (), True),
        (("staff",), ("staff", "press"), True),
        (("staff",), ("press",), False),
        (("staf",), ("staff",), False),
    ],
)
def test_acl(asker: tuple[str, ...] | None, groups: tuple[str, ...], seen: bool) -> None:
    assert PassageFilter(acl=asker).allows(passage(groups)) is seen


@pytest.mark.parametrize(
    ("as_of", "bounds", "holds"),
    [
        (None, ("2011", "2012"), True),
        ("2016", (None, None), True),
        ("2016-06-01", ("2016-06-01", "2016-06-01"), True),
        ("2016-06-01", ("2016-06-02", None), False),
        ("2016-06-01", (None, "2016-05-31"), False),
        ("2016-06", ("2016-06-30", None), True),
        ("2016-06", (None, "2016-06-01"), True),
        ("2016-12", (None, "2016"), True),
        ("2017", ("2016-12", "2018-01"), True),
        ("2015", ("2016-01", None), False),
    ],
)
def test_validity(as_of: str | None, bounds: tuple[str | None, str | None], holds: bool) -> None:
    assert PassageFilter(as_of=as_of).allows(passage((), *bounds)) is holds


def test_both_must_allow() -> None:
    both = PassageFilter(acl=("staff",), as_of="2016")
    assert both.allows(passage(("staff",), "2015", "2017"))
    assert not both.allows(passage(("press",), "2015", "2017")) and not both.allows(passage(("staff",), "2017"))
    assert both.restricts and PassageFilter(acl=()).restricts and not PassageFilter().restricts
    assert PassageFilter(acl=("b", "a", "b")) == PassageFilter(acl=("a", "b"))


def test_what_is_no_filter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"filter.acl must be a list of non-empty names, got 'staff'") as raised:
        PassageFilter(acl="staff", as_of="yesterday")  # type: ignore[arg-type]
    assert "filter.as_of must be a date as 2016, 2016-12 or 2016-12-31, got 'yesterday'" in str(raised.value)
    with pytest.raises(ConfigError, match=r"got \('',\)"):
        PassageFilter(acl=("",))
    with pytest.raises(ConfigError, match="got 2016"):
        PassageFilter(as_of=2016)  # type: ignore[arg-type]
