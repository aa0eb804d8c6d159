"""Authentication and permissions."""

import hashlib
import hmac
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from rest_framework.authentication import BasicAuthentication, SessionAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from history.masking.logins import login, may

READ_HISTORY = "history.view_history"
READ_COMPLETENESS = "ingest.view_completeness"
VERIFIED_SECONDS = 60.0
VERIFIED_LOGINS = 1000


class Session(SessionAuthentication):
    """The log-in of the screens. Answers 401 and not 403 where there is none."""

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        return 'Session realm="annals"'


@dataclass(frozen=True, slots=True)
class _Verified:
    user_id: int
    password: str  # as stored: a changed password is verified again
    until: float


class DemoBasic(BasicAuthentication):
    """HTTP Basic, in demo mode only. A verified password is remembered for a minute."""

    www_authenticate_realm = "annals"
    _verified: dict[bytes, _Verified] = {}

    def authenticate_credentials(
        self, userid: str, password: str, request: Request | None = None
    ) -> tuple[AbstractBaseUser, None]:
        secret = hashlib.sha256(settings.SECRET_KEY.encode()).digest()
        proof = hmac.digest(secret, f"{userid}\0{password}".encode(), "sha256")
        return self._known(proof) or self._verify(proof, userid, password, request), None

    def _known(self, proof: bytes) -> AbstractBaseUser | None:
        known = self._verified.get(proof)
        if known is None or known.until < time.monotonic():
            return None
        user = login(known.user_id)
        same = user is not None and user.is_active and user.password == known.password
        return user if same else None

    def _verify(
        self, proof: bytes, userid: str, password: str, request: Request | None
    ) -> AbstractBaseUser:
        user: AbstractBaseUser = super().authenticate_credentials(userid, password, request)[0]
        if len(self._verified) >= VERIFIED_LOGINS:
            self._verified.clear()
        until = time.monotonic() + VERIFIED_SECONDS
        self._verified[proof] = _Verified(user.pk, user.password, until)
        return user


class MayRead(BasePermission):
    """Logins with the permission that the view names."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return may(request.user, view.permission)
