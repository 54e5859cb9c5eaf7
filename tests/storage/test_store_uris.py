"""URIs of object stores: what of them is a path, and what are options."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import FileSystem

from kdump.errors import UsageProblem
from kdump.storage import snapshot_place
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


@pytest.mark.parametrize(
    ("uri", "typed", "left_out"),
    [
        ("s3://b/d1", "s3://b/d1", ""),
        (f"s3://b/d1?{OPTIONS}", f"s3://b/d1?{OPTIONS}", ""),
        (f"s3://b?{OPTIONS}", f"s3://b?{OPTIONS}", ""),
        ("s3://b/d?1?", "s3://b/d?1?", ""),
        ("s3://K:S@b/d1", "s3://b/d1", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (
            f"s3://b/d?secret_key=S&{OPTIONS}&access_key=K",
            f"s3://b/d?{OPTIONS}",
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        ("gs://anonymous@b/d", "gs://anonymous@b/d", ""),
        ("gs://K:S@b/d", "gs://b/d", "the store's credentials"),
        ("abfs://c@a.example/d", "abfs://c@a.example/d", ""),
        ("abfs://c:S@a.example:99/d", "abfs://c@a.example:99/d", "the store's credentials"),
        (
            "abfs://c@a.example/d?client_id=1&client_secret=S",
            "abfs://c@a.example/d?client_id=1",
            "the store's credentials",
        ),
        ("abfs://c@a.example/d?sig=S", "abfs://c@a.example/d", "the store's credentials"),
        ("hdfs://[::1]/d?dfs.x=1&other=S", "hdfs://[::1]/d?dfs.x=1", "the store's credentials"),
        (f"s3://b/x.tar!/a?{OPTIONS}", f"s3://b/x.tar!/a?{OPTIONS}", ""),
        ("s3://b/x.tar!/a?b?", "s3://b/x.tar!/a?b?", ""),
    ],
)
def test_a_command_names_a_uri_with_its_options_and_without_credentials(
    monkeypatch: pytest.MonkeyPatch, uri: str, typed: str, left_out: str
) -> None:
    monkeypatch.setattr("kdump.storage.tar_archive._fingerprint", lambda _: (0, 0))
    assert parse_location(uri).typed == (typed, left_out)
    forget_places()


@pytest.mark.parametrize(
    "uri", ["s3://KEY:a/b@b/d", "s3://KEY:a?b@b/d", "gs://KEY:a/b@b/d", "abfs://c:a/b@h.example/d"]
)
def test_a_secret_that_is_not_encoded_is_refused_and_not_shown(uri: str) -> None:
    with pytest.raises(UsageProblem, match=r"in a secret, write / as %2F") as caught:
        parse_location(uri)
    assert not re.search("KEY|a/b|c:", str(caught.value))


@pytest.mark.parametrize("scheme", ["abfs", "abfss"])
def test_a_key_without_an_account_is_refused_with_the_forms_that_work(scheme: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        parse_location(f"{scheme}://:S2VjcmV0@account/container/d1")
    said = str(caught.value)
    assert "S2VjcmV0" not in said
    forms = [each for each in said.split() if "KEY@" in each]
    assert len(forms) == 2
    for form in forms:
        filled = form.replace("KEY", "S2VjcmV0").replace("ACCOUNT", "account").lower()
        _, path = FileSystem.from_uri(filled.replace("s2vjcmv0", "S2VjcmV0"))
        assert path.strip("/") == "container/path"
        parse_location(form)
    forget_places()


@given(names=st.lists(parts, max_size=3), options=st.sampled_from(["", OPTIONS]))
def test_the_text_of_any_path_is_that_path(names: list[str], options: str) -> None:
    location = parse_location(f"s3://KEY:S%2Fecret@b/?{options}")
    for name in names:
        location /= name
    with pytest.MonkeyPatch.context() as patched:
        # Whether it names a snapshot, only the store knows.
        patched.setattr(snapshot_place, "in_snapshot", lambda each: each)
        assert parse_location(text_of(location)) == location
    assert "ecret" not in str(location)
    forget_places()
