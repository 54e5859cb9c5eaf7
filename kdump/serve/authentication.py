"""Who a client is: SCRAM, with the credentials of the cluster's metadata."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode
from scramp import ScramException, ScramMechanism

from kdump.serve.messages import API_VERSIONS, Answer, Request
from kdump.state.metadata.metadata_entities import ScramCredential

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
AUTHENTICATING: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})
EARLY: Final = AUTHENTICATING | {API_VERSIONS}
"""What is answered before a client has said who it is."""
LARGEST_EARLY_REQUEST_BYTES: Final = 4 << 10
"""Of a client that has not said who it is: all of them together leave memory for the others."""
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class NotAuthenticatedError(Exception):
    """A client has not proved who it is; its connection ends after this answer.

    Attributes:
        answer: for the client.
    """

    def __init__(self, why: str, answer: Answer) -> None:
        super().__init__(why)
        self.answer = answer


class Credentials:
    """The SCRAM credentials of a cluster."""

    def __init__(self, credentials: Iterable[ScramCredential]) -> None:
        self._known = {(each.mechanism, each.user): each for each in credentials}

    @property
    def user_count(self) -> int:
        """How many users can authenticate."""
        return len({user for mechanism, user in self._known if mechanism in MECHANISMS})

    def of(self, mechanism: str, user: str) -> tuple[bytes, bytes, bytes, int] | None:
        """What SCRAM asks for; None without a credential of this user and mechanism."""
        found = self._known.get((mechanism, user))
        if found is None:
            return None
        return found.salt, found.stored_key, found.server_key, found.iterations


class Authentication:
    """The authentication of one connection. Follows ``SaslServerAuthenticator``.

    Attributes:
        user: the name of the client, once it has proved it; None before.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._mechanism: str | None = None
        self._exchange: Any = None
        self._claimed = ""
        self._why = "it sent no proof of who it is"
        self.user: str | None = None

    def answer(self, request: Request) -> Answer:
        """Answer ``SaslHandshake`` or ``SaslAuthenticate``.

        Raises:
            NotAuthenticatedError: the client cannot authenticate like this.
        """
        is_handshake = request.api_key == SASL_HANDSHAKE
        if is_handshake == (self._mechanism is not None):
            why = "it did not authenticate in order"
            raise NotAuthenticatedError(why, illegal_state(request))
        return self._handshake(request) if is_handshake else self._authenticate(request)

    def _handshake(self, request: Request) -> Answer:
        mechanism = request.body.mechanism
        answer = {"mechanisms": MECHANISMS}
        if mechanism not in MECHANISMS:
            error = {"error_code": ErrorCode.unsupported_sasl_mechanism}
            raise NotAuthenticatedError("it knows no SCRAM mechanism", {**answer, **error})
        self._mechanism = mechanism
        self._exchange = ScramMechanism(mechanism).make_server(self._credential)
        return answer

    def _credential(self, user: str) -> tuple[bytes, bytes, bytes, int] | None:
        assert self._mechanism is not None
        self._claimed = user
        found = self._credentials.of(self._mechanism, user)
        if found is None:
            self._why = f"user {user!r} has no {self._mechanism} credential"
        else:
            self._why = f"the password of user {user!r} is wrong"
        return found

    def _authenticate(self, request: Request) -> Answer:
        is_first = self._exchange.stage is None
        try:
            message = bytes(request.body.auth_bytes).decode()
            if is_first:
                self._exchange.set_client_first(message)
                return _authenticated(self._exchange.get_server_first().encode())
            self._exchange.set_client_final(message)
            said = self._exchange.get_server_final().encode()
        except (ScramException, LookupError, ValueError, TypeError) as problem:
            # A broker does not tell the client more, either, and says at the first message that a
            # user is unknown.
            why = (
                "Authentication failed during authentication due to invalid credentials with"
                f" SASL mechanism {self._mechanism}"
            )
            error = ErrorCode.sasl_authentication_failed
            raise NotAuthenticatedError(self._why, _authenticated(b"", error, why)) from problem
        self.user = self._claimed
        return _authenticated(said)


def illegal_state(request: Request) -> Answer:
    """The answer to what comes too late, or too early."""
    if request.api_key == SASL_HANDSHAKE:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
    return _authenticated(b"", ErrorCode.illegal_sasl_state, "authentication is not expected now")


def _authenticated(
    data: bytes, error: ErrorCode = ErrorCode.none, why: str | None = None
) -> Mapping[str, Any]:
    return {
        "error_code": error,
        "error_message": why,
        "auth_bytes": data,
        "session_lifetime": dt.timedelta(0),
    }
