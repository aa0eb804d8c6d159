"""A temporary certificate authority and a server certificate for the loopback address."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=3650)


def make_certificates(folder: Path) -> tuple[Path, Path]:
    """Write `ca.pem` (the authority) and `server.pem` (key, then certificate) into `folder`.

    The server's key is PKCS #8, the format that Kafka reads from PEM key stores. The authority's
    key is not stored, so it cannot sign further certificates.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _make_certificate(
        "Annals temporary authority", authority_key.public_key()
    ).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = (
        _make_certificate("localhost", key.public_key(), issuer="Annals temporary authority")
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    encoding = serialization.Encoding.PEM
    secret = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    trust, store = folder / "ca.pem", folder / "server.pem"
    store.touch(mode=0o600)
    store.write_bytes(secret + server.sign(authority_key, hashes.SHA256()).public_bytes(encoding))
    trust.write_bytes(authority.sign(authority_key, hashes.SHA256()).public_bytes(encoding))
    return trust, store


def _make_certificate(
    subject: str, key: ec.EllipticCurvePublicKey, issuer: str | None = None
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_make_name(subject))
        .issuer_name(_make_name(issuer or subject))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + VALID)
    )


def _make_name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
