"""Files with the authorities of certificates: of the gateway's clients, and of models' servers."""

from pathlib import Path as FilePath

from tyrum_gateway.config.regular_file import read_regular_file

MAX_PEM_BYTES = 1024 * 1024


def authority_problem(path: FilePath) -> str:
    """Say why a file names no authorities; empty when it does."""
    from cryptography import x509  # noqa: PLC0415 - heavy, and most files need none

    try:
        x509.load_pem_x509_certificates(read_pem(path))
    except OSError as error:
        return f"this file cannot be read: {error.strerror}"
    except ValueError:
        return "this file holds no PEM certificate"
    return ""


def read_pem(path: FilePath) -> bytes:
    """Read a file of certificates or of a key.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    return read_regular_file(path, limit=MAX_PEM_BYTES)
