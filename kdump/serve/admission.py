"""How clients come in: in the clear or by TLS, and whether they have to say who they are."""

from __future__ import annotations

import ssl

from msgspec import Struct

from kdump.errors import KdumpError
from kdump.serve.authentication import Credentials
from kdump.state.metadata.authorizer import Authorizer


class Identities(Struct, frozen=True):
    """Who there is, and who may do what.

    Attributes:
        credentials: of the users.
        authorizer: decides what they may see.
    """

    credentials: Credentials
    authorizer: Authorizer


class Admission(Struct, frozen=True):
    """How clients come in.

    Attributes:
        tls: None in the clear.
        identities: None if nobody is asked who they are.
        name: that clients are told to come back to; None for the address that they reached.
    """

    tls: ssl.SSLContext | None = None
    identities: Identities | None = None
    name: str | None = None


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """TLS 1.2 or later, with a certificate and its chain.

    Raises:
        KdumpError: a file cannot be read, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A password would be asked for at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as failure:
        why = failure.reason or "not a certificate with its key"
        raise KdumpError(f"{certificate}, {key}: not usable for TLS: {why}") from failure
    except OSError as failure:
        # The failure does not say which of the two files it is.
        raise KdumpError(f"{certificate}, {key}: {failure.strerror}") from failure
    return context
