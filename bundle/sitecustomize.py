"""Run by the bundle's Python when it starts: use the certificates of the machine it runs on.

OpenSSL looks for them where the distribution has them on which the bundle was made.
"""

from __future__ import annotations

import os

_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat, Fedora, Amazon
    "/etc/ssl/ca-bundle.pem",  # SUSE
)

if "SSL_CERT_FILE" not in os.environ and "SSL_CERT_DIR" not in os.environ:
    for _path in _CERTIFICATES:
        if os.path.exists(_path):  # noqa: PTH110 - pathlib takes longer to import
            os.environ["SSL_CERT_FILE"] = _path
            break
