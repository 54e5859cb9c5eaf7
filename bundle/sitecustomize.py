"""Run by the bundle's Python when it starts: find the bundle's packages, and certificates.

OpenSSL looks for certificates where the distribution has them on which the bundle was made: use
those of the machine it runs on. Debian's Python looks for packages in other folders.
"""

from __future__ import annotations

import os
import sys

_PACKAGES = os.path.join(os.path.dirname(os.__file__), "site-packages")  # noqa: PTH118, PTH120
if _PACKAGES not in sys.path:
    sys.path.append(_PACKAGES)

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
