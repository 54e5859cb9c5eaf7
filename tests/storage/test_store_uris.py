"""URIs of object stores: what of them is a path, and what are options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.storage.object_store import ObjectStore
from kdump.storage.places import forget_places, parse_location, text_of

OPTIONS = "region=eu-west-1&scheme=http"
parts = st.text(min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..") and "/" not in name
)


@pytest.mark.parametrize(
    ("uri", "path", "options"),
    [
        ("s3://b", "/", ""),
        ("s3://b/", "/", ""),
        ("s3://b/d1", "/d1", ""),
        ("s3://b/d1//x/", "/d1/x", ""),
        ("s3://b/50%/%41%2F", "/50%/%41%2F", ""),
        ("s3://b/a b+&=;:@#c", "/a b+&=;:@#c", ""),
        (f"s3://b?{OPTIONS}", "/", OPTIONS),
        (f"s3://b/d1?{OPTIONS}", "/d1", OPTIONS),
        ("s3://b/d?1?", "/d?1", ""),
        ("s3://b/d?1/x??", "/d?1/x?", ""),
        (f"s3://b/d?x=1#y?{OPTIONS}", "/d?x=1#y", OPTIONS),
    ],
)
def test_options_follow_the_last_question_mark(uri: str, path: str, options: str) -> None:
    location = parse_location(uri)
    assert isinstance(location.storage, ObjectStore)
    assert location.path == path
    assert location.storage.root_uri == (f"s3://b/?{options}" if options else "s3://b/")
    assert str(location) == ("s3://b" if path == "/" else f"s3://b{path}")
    forget_places()


@given(names=st.lists(parts, max_size=3), options=st.sampled_from(["", OPTIONS]))
def test_the_text_of_any_path_is_that_path(names: list[str], options: str) -> None:
    location = parse_location(f"s3://KEY:S%2Fecret@b/?{options}")
    for name in names:
        location /= name
    assert parse_location(text_of(location)) == location
    assert "ecret" not in str(location)
    forget_places()
