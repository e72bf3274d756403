"""Enrolment tokens: what they give, to whom, how often, and what is stored of them."""

import datetime
import stat
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from fedecado.cli.main import main
from fedecado.common.certificates import Authority, common_name, issue, make_authority
from fedecado.common.errors import ConfigError, IdentityError
from fedecado.common.invitation import Invitation, read_invitation
from fedecado.common.registry import certificates, registry
from fedecado.common.revocation import revoke_certificates
from fedecado.common.tokens import create, redeem, renew, request_key, revoke_token, tokens

LIFE = datetime.timedelta(hours=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder)
    return folder


@pytest.fixture
def authority(made: Path, tmp_path: Path) -> Authority:
    """The same keys for all tests, and a registry for each."""
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    return Authority.load(tmp_path)


def key() -> ec.EllipticCurvePublicKey:
    return ec.generate_private_key(ec.SECP256R1()).public_key()


def gives(authority: Authority, token: str, wanted: str = "") -> str:
    return common_name(redeem(authority, token, wanted, key(), LIFE))


def test_a_token_gives_a_certificate_for_its_id_once(authority: Authority) -> None:
    token = create(authority.folder, "worker-0")
    public = key()
    certificate = redeem(authority, token, "", public, LIFE)
    certificate.verify_directly_issued_by(authority.certificate)
    assert common_name(certificate) == "worker-0"
    assert certificate.public_key() == public
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(0) < left <= LIFE
    with pytest.raises(IdentityError, match="used 1 times"):
        gives(authority, token)


def test_a_lost_answer_can_be_asked_for_again_with_the_same_key_and_counts_once(authority: Authority) -> None:
    token, public = create(authority.folder, "worker-0"), key()
    assert [common_name(redeem(authority, token, "", public, LIFE)) for _ in range(3)] == ["worker-0"] * 3
    assert tokens(authority.folder)[0].used == 1
    revoke_certificates(authority.folder, "worker-0")
    with pytest.raises(IdentityError, match="used"):
        redeem(authority, token, "", public, LIFE)


def test_a_token_for_one_id_gives_no_other(authority: Authority) -> None:
    token = create(authority.folder, "worker-0")
    with pytest.raises(IdentityError, match="for 'worker-0', not for 'worker-1'"):
        gives(authority, token, "worker-1")
    assert tokens(authority.folder)[0].used == 0
    assert gives(authority, token, "worker-0") == "worker-0"


def test_a_counted_token_gives_each_id_once_and_no_more_than_it_was_made_for(authority: Authority) -> None:
    issue(authority.folder, "worker-1")
    token = create(authority.folder, "worker-", prefix=True, uses=3)
    assert gives(authority, token) == "worker-0"
    assert gives(authority, token) == "worker-2", "worker-1 is somebody's"
    with pytest.raises(IdentityError, match="tokens create worker-2"):
        gives(authority, token, "worker-2")
    for bad in ("other", "worker-\n", "worker-" + "x" * 70):
        with pytest.raises(IdentityError, match="begin with 'worker-'"):
            gives(authority, token, bad)
    assert gives(authority, token, "worker-east") == "worker-east"
    with pytest.raises(IdentityError, match="used 3 times"):
        gives(authority, token)
    assert gives(authority, create(authority.folder, "worker-2")) == "worker-2"


def test_a_token_ends_and_can_be_revoked(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    brief, other = create(authority.folder, "a", hours=1), create(authority.folder, "b")
    revoke_token(authority.folder, tokens(authority.folder)[1].id)
    with pytest.raises(IdentityError, match="revoked"):
        gives(authority, other)
    later = time.time() + 3601
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(IdentityError, match="ended"):
        gives(authority, brief)
    with pytest.raises(ConfigError, match="no token 'x'"):
        revoke_token(authority.folder, "x")


def test_a_guess_learns_nothing(authority: Authority) -> None:
    """A wrong secret, an unknown number and plain nonsense are answered alike, whatever a token's state."""
    token = create(authority.folder, "worker-0")
    number = tokens(authority.folder)[0].id
    revoke_token(authority.folder, number)
    said = set()
    for guess in ("", "x", token[:-1], f"fdt_{number}_{'A' * 43}", f"fdt_{'0' * 12}_{'A' * 43}", token + " "):
        with pytest.raises(IdentityError) as error:
            gives(authority, guess)
        said.add(str(error.value))
    assert len(said) == 1


def test_only_a_hash_of_a_token_is_stored_in_a_private_file(authority: Authority) -> None:
    token = create(authority.folder, "worker-0")
    gives(authority, token)
    stored = authority.folder / "registry.db"
    assert token.split("_", 2)[2].encode() not in stored.read_bytes()
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["admin", "admin-eve"])
def test_no_token_gives_an_operators_certificate(authority: Authority, name: str) -> None:
    with pytest.raises(ConfigError, match="operator"):
        create(authority.folder, name)
    with pytest.raises(IdentityError):
        gives(authority, create(authority.folder, "a", prefix=True, uses=9), name)
    with pytest.raises(IdentityError, match="operator"):
        renew(authority, name, key(), LIFE)


@pytest.mark.parametrize("options", [{"uses": 0}, {"hours": 0}, {"hours": 1e9}])
def test_a_token_that_cannot_be_is_refused(authority: Authority, options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        create(authority.folder, "w", **options)  # type: ignore[arg-type]  # some are nonsense on purpose


def test_what_was_given_out_is_known_and_what_has_ended_is_forgotten(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    redeem(authority, create(authority.folder, "w"), "", key(), datetime.timedelta(seconds=-1))
    renew(authority, "w", key(), LIFE)
    renew(authority, "w", key(), LIFE)
    with registry(authority.folder) as connection:
        assert [found.name for found in certificates(connection)] == ["w", "w"]


def request(private: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return made.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_a_signing_request_must_be_for_a_p256_key_and_signed_with_it() -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    good = request(private)
    assert request_key(good) == private.public_key()
    for other in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)):
        with pytest.raises(IdentityError, match="P-256"):
            request_key(request(other))
    forged = bytearray(good)
    forged[-3] ^= 1  # in the signature
    with pytest.raises(IdentityError):
        request_key(bytes(forged))


@given(data=st.binary(max_size=300))
def test_no_bytes_but_a_signing_request_pass(data: bytes) -> None:
    with pytest.raises(IdentityError):
        request_key(data)


def test_a_token_file_carries_the_authority_or_needs_it_beside(authority: Authority, tmp_path: Path) -> None:
    pem = (authority.folder / "ca.pem").read_bytes()
    path = tmp_path / "w.token"
    path.write_text(Invitation("fdt_x_y", pem).text())
    assert read_invitation(path) == Invitation("fdt_x_y", pem)
    assert "fdt" not in repr(read_invitation(path))
    path.write_text("fdt_x_y\n")
    assert read_invitation(path, authority.folder / "ca.pem").authority == pem
    with pytest.raises(ConfigError, match="tls_ca"):
        read_invitation(path)
    for text in ("", "two words\n", pem.decode()):
        path.write_text(text)
        with pytest.raises(ConfigError, match="no token"):
            read_invitation(path, authority.folder / "ca.pem")


def test_the_tokens_command_makes_lists_and_revokes(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["certs", "init"]) == 0
    assert main(["tokens", "create", "w1", "-o", "w1.token"]) == 0
    assert stat.S_IMODE(Path("w1.token").stat().st_mode) == 0o600
    secret = read_invitation(Path("w1.token")).token
    assert main(["tokens", "create", "w-", "--prefix", "--uses", "5", "--hours", "2"]) == 0
    out = capsys.readouterr().out
    assert "fdt_" in out
    assert secret not in out
    assert main(["tokens", "ls"]) == 0
    listed = capsys.readouterr().out
    assert "used 0 of 1  good until" in listed
    assert "w-* " in listed
    assert secret.split("_", 2)[2] not in listed
    number = secret.split("_")[1]
    assert main(["tokens", "revoke", number]) == 0
    assert main(["tokens", "ls"]) == 0
    assert "is revoked" in capsys.readouterr().out
    assert main(["tokens", "admin", "-o", "admin.token"]) == 0
    assert len(Path("admin.token").read_text().strip()) >= 40
    assert main(["tokens", "create", "admin"]) == 2
