"""The content of a RedisCluster's Secrets, and whether its nodes can run with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from operators.redis.api.acl_user import User
from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import Access
from operators.redis.objects import names as object_names
from operators.redis.objects.redis_conf import USERS_KEY
from operators.redis.security.certificates import MountedCertificates, leaves
from operators.redis.security.users import GENERATED, Passwords, SpecUser
from shared.kubernetes import secret_provenance
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import (
    CERTIFICATE_KEYS,
    PASSWORD_KEY,
    PREVIOUS_PASSWORD_KEY,
    content_of,
    digest,
    key_of,
    used,
)
from shared.pki.certs import joined
from shared.pki.secret_checks import SecretProblem, UnusableSecret, certificate_of, password_of
from shared.pki.secret_names import authority_secret
from shared.pki.stores import certificate_secrets, certificates_in, validities
from shared.pki.threads import evaluate
from shared.pki.validity import Validity
from shared.status.observed_secrets import versions_of
from shared.steps.own_secrets import former_secrets
from shared.steps.passwords import own_secret


@dataclass(frozen=True, slots=True)
class Secrets:
    """Content of the Secrets of a cluster.

    Attributes:
        problem: problem of the Secrets that others provide, if any.
        access: credentials of the operator, as far as they are known.
        passwords: valid passwords in the operator's Secret; None before it exists.
        desired: password to rotate to; empty if none is to be required; None if it is unknown.
        named: additional valid password (previousPassword); empty for none.
        of_users: password of each user of the spec, as `desired`, or why it has none.
        users_mark: digest that identifies the users file, without revealing it; empty before there is one.
        original: desired certificate and authorities; None without TLS, or if they are unusable.
        mounted: certificate and authorities that nodes mount; None without TLS, or if they are unusable.
        validity: period of each certificate that is in use, by the name of the Secret to renew.
        found: present Secrets by name; None for one that does not exist.
        unproven: Secrets with names of the operator's own and content of unknown origin; `found` has None for them.
    """

    problem: SecretProblem | None = None
    access: Access = field(default_factory=Access)
    passwords: Passwords | None = None
    desired: str | None = field(default=None, repr=False)
    named: str = field(default="", repr=False)
    of_users: Mapping[str, str | SecretProblem] = field(default_factory=dict, repr=False)
    users_mark: str = ""
    original: MountedCertificates | None = None
    mounted: MountedCertificates | None = None
    validity: Mapping[str, Validity] = field(default_factory=dict)
    found: Mapping[str, Obj | None] = field(default_factory=dict, repr=False)
    unproven: tuple[Obj, ...] = field(default=(), repr=False)

    @property
    def applied_users(self) -> Mapping[str, SpecUser]:
        """Users of the spec as the file of the nodes has them, by name; those that are being removed too."""
        return {user.name: user for user in self.passwords.users} if self.passwords else {}


async def read(resource: RedisCluster, kube: Kube) -> Secrets:
    """Read the Secrets and evaluate them."""
    made = made_secrets(resource)
    found, unproven = await secret_provenance.find(kube, resource.obj, names(resource), made)
    return replace(await evaluate(resource.namespace, judge, resource, found), unproven=unproven)


def made_secrets(resource: RedisCluster) -> set[str]:
    """Return the names of the Secrets that the operator makes; while the spec changes, also those of the former one."""
    auth, tls, made = resource.spec.auth, resource.spec.tls, {object_names.users_secret(resource)}
    if auth is not None and not auth.secret_name:
        made.add(object_names.password_secret(resource))
    if tls.mode == "self":
        made |= {*_certificates(resource)}
    if tls.mode != "none":
        made.add(object_names.tls_secret(resource))
    return made | (former_secrets(resource) - object_names.recorded_user_secrets(resource))


def names(resource: RedisCluster) -> dict[str, set[str]]:
    """Return the names of the Secrets of a cluster, with the keys that are used if others provide them."""
    given, is_encrypted = object_names.password_secret(resource), resource.spec.tls.mode != "none"
    of_users = [user.password_secret for user in resource.spec.users if user.password_secret]
    return used(
        ({object_names.users_secret(resource)}, ()),
        ({given} - {""}, (PASSWORD_KEY, PREVIOUS_PASSWORD_KEY)),
        (_certificates(resource), CERTIFICATE_KEYS),
        ({object_names.tls_secret(resource)} if is_encrypted else (), ()),
        *(({each.name}, {each.key or PASSWORD_KEY}) for each in of_users),
    )


def provided_versions(resource: RedisCluster, secrets: Secrets) -> dict[str, str | None]:
    """Return the resourceVersions of the Secrets that users or cert-manager provide, by name."""
    given, mode = object_names.password_secret(resource), resource.spec.tls.mode
    provided = [given] if given else []
    provided += [user.password_secret.name for user in resource.spec.users if user.password_secret]
    provided += [object_names.server_secret(resource)] if mode not in ("none", "self") else []
    return versions_of({name: secrets.found.get(name) for name in provided})


def _certificates(resource: RedisCluster) -> tuple[str, ...]:
    return certificate_secrets(resource.spec.tls.mode, leaves(resource), authority_secret(resource.name))


def judge(resource: RedisCluster, found: Mapping[str, Obj | None]) -> Secrets:
    """Evaluate the Secrets: their content or their problem. Pure, and independent of the time.

    Args:
        found: Secrets by name; None for one that does not exist.
    """
    problem, desired, named, original = None, None, "", None
    try:
        desired = _password(resource, found)
    except UnusableSecret as wrong:
        problem = wrong.problem
    try:  # also without a password: nodes load a renewed certificate before the last one expires
        original = _original(resource, found)
    except UnusableSecret as wrong:
        problem = problem or wrong.problem
    if resource.spec.auth is not None:
        named = content_of(_password_secret(resource, found)).get(PREVIOUS_PASSWORD_KEY, "")
    users = found[object_names.users_secret(resource)]
    passwords = Passwords.of(users)
    generated = content_of(users)
    mark = digest([(key_of(users), generated[USERS_KEY].encode())])[:16] if passwords else ""
    mounted = None
    if resource.spec.tls.mode != "none":
        mounted = MountedCertificates.of(found[object_names.tls_secret(resource)])
    access = _access(resource, passwords, (desired or "", named), mounted, original)
    validity = validities(found, _certificates(resource), authority_secret(resource.name))
    if mounted is not None:
        validity[object_names.server_secret(resource)] = mounted.validity
    of_users = {user.name: _user_password(user, found, generated) for user in resource.spec.users}
    return Secrets(problem, access, passwords, desired, named, of_users, mark, original, mounted, validity, found)


def _user_password(user: User, found: Mapping[str, Obj | None], generated: Mapping[str, str]) -> str | SecretProblem:
    """Return the password of a user of the spec; empty for one that is not generated yet."""
    given = user.password_secret
    if given is None:
        return generated.get(f"{GENERATED}{user.name}", "")
    try:
        return password_of(f"spec.users {user.name}", given.name, found[given.name], given.key or PASSWORD_KEY)
    except UnusableSecret as wrong:
        return wrong.problem


def _password(resource: RedisCluster, found: Mapping[str, Obj | None]) -> str:
    """Return the password to rotate to; empty if none is to be required."""
    name = object_names.password_secret(resource)
    return password_of("spec.auth", name, _password_secret(resource, found)) if name else ""


def _password_secret(resource: RedisCluster, found: Mapping[str, Obj | None]) -> Obj | None:
    """Return the Secret with the desired password; None if there is none, or if a generated one has another owner."""
    auth, secret = resource.spec.auth, found[object_names.password_secret(resource)]
    is_given = auth is not None and auth.secret_name
    return secret if is_given else own_secret(resource.uid, resource.name, "redis", secret)


def _original(resource: RedisCluster, found: Mapping[str, Obj | None]) -> MountedCertificates | None:
    """Return the desired certificate of the nodes, if all peers can accept it."""
    mode = resource.spec.tls.mode
    if mode == "none":
        return None
    name = object_names.server_secret(resource)
    secret = found[name]
    if mode == "self":
        return MountedCertificates.of(secret)
    node = object_names.host(resource, object_names.node_name(resource, 0))
    service = f"{object_names.client_service_name(resource)}.{resource.namespace}.svc"
    # Nodes are each other's clients.
    certificate_of("spec.tls", name, secret, hosts=(node, service), is_client=True, is_ordered=mode == "certManager")
    found_pair = MountedCertificates.of(secret)
    if found_pair is None or mode == "secret":
        return found_pair
    # cert-manager may renew the certificate of clients with another authority, earlier or later than that of the nodes.
    others = certificates_in(found[object_names.client_secret(resource)])
    return replace(found_pair, trusted=tuple(dict.fromkeys((*found_pair.trusted, *others))))


def _access(
    resource: RedisCluster,
    passwords: Passwords | None,
    others: tuple[str, ...],
    mounted: MountedCertificates | None,
    original: MountedCertificates | None,
) -> Access:
    """Return the credentials of the operator: the certificate of the nodes, which all of them accept at any time.

    Nodes still use the mounted one after its Secret was lost. Mostly it is the original.
    """
    known = [] if passwords is None else list(passwords.good)
    current, *former = dict.fromkeys([*known, *others]) or ("",)
    unknown = None if resource.spec.tls.mode == "none" else ""  # the mode is immutable: all nodes use it
    access = Access(unknown, password=current, former=tuple(each for each in former if each))
    if (used := mounted or original) is None:
        return access
    trusted = dict.fromkeys((*used.trusted, *(original.trusted if original else ())))
    return replace(access, authority=joined(trusted), pair=used.pair)
