"""Certificates of a database, issued by the operator or requested from cert-manager. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from shared.api.spec import Issuer
from shared.kubernetes.accessors import LATEST, annotation, time_in
from shared.kubernetes.kinds import SECRET, Kind, Obj
from shared.kubernetes.managed_fields import record_of, shared_keys
from shared.kubernetes.ownership import ForeignObject, Owner, require_owned
from shared.kubernetes.secrets import AUTHORITY_KEY, SECRETS_RETRY_SECONDS, content_of, encoded, has_content
from shared.pki import rotation, stores
from shared.pki.certs import Certificate
from shared.pki.copies import CopiedCertificate, TrustedCertificate, following
from shared.pki.rotation import (
    AUTHORITY,
    DATABASES,
    Authorities,
    Authority,
    AuthorityEvent,
    AuthorityState,
    CertificateRequest,
    RotationPolicy,
)
from shared.pki.secret_names import authority_secret
from shared.pki.validity import Validity
from shared.runtime.plan import PASS, Apply, Step, WriteSecret
from shared.status.reasons import (
    CERTIFICATE_EXPIRED,
    CERTIFICATE_EXPIRING,
    CERTIFICATE_NOT_YET_VALID,
    CERTIFICATES_NOT_ISSUED,
    FOREIGN_OBJECT,
    ISSUING_CERTIFICATES,
    REPLACING_CERTIFICATES,
)
from shared.status.verdict import Progress

CERTIFICATE = Kind("cert-manager.io", "v1", "Certificate", "certificates")

RENEWAL_WINDOW = timedelta(hours=1)
"""A certificate that is due within this time is replaced on time; any other at the next resync."""


def keep_certificates(issuing: Issuing, mode: str, issuer: Issuer | None, *, is_permitted: bool = True) -> Step:
    """Issue certificates before servers need them, and replace them before they expire.

    Args:
        mode: issuer of the certificates: the operator (self), cert-manager (certManager), or the user.
        issuer: issuer that cert-manager uses; None requests nothing: the spec is invalid, which another step reports.
        is_permitted: whether the operator may write Secrets.
    """
    if mode == "certManager":
        if issuer is None:
            return PASS
        made = cert_manager_certificates(issuing.own, issuing.component, issuing.leaves, issuer)
        return Step.do(*(Apply(CERTIFICATE, certificate) for certificate in made))
    if mode != "self":
        return PASS
    if not is_permitted:
        return PASS if issuing.has_certificates else _refuse_to_issue()
    try:
        why, writes = issuing.next()
    except ForeignObject as error:
        return Step.blocked(FOREIGN_OBJECT, str(error))
    if writes:
        return Step.wait(ISSUING_CERTIFICATES, f"Issuing certificates: {why}.", *writes)
    due = issuing.due
    if due is None or due - issuing.now > RENEWAL_WINDOW:
        return PASS
    return Step(requeue=max((due - issuing.now).total_seconds(), 1.0))


def _refuse_to_issue() -> Step:
    return Step.blocked(
        CERTIFICATES_NOT_ISSUED,
        "spec.tls.mode: the operator may not issue certificates: its chart value rbac.writeSecrets is false. Use mode "
        "secret or certManager, or set that value to true. Nothing was changed.",
    )


@dataclass(frozen=True)
class Issuing:
    """The next writes to the Secrets with a resource's certificates.

    The database determines when servers load a new trust bundle: etcd only at startup, Redis on a command.

    Attributes:
        own: owner of the Secrets.
        component: component label of the Secrets.
        leaves: certificates to issue.
        found: the Secrets as observed, by name; None for one that does not exist.
        informed: fingerprint of the newest authority that every server trusts and would trust after a restart; empty if
            servers differ.
        stamp: annotation of the certificates' Secrets with the time of the last change of the trust bundle; empty for
            none.
    """

    own: Owner
    component: str
    leaves: tuple[CertificateRequest, ...]
    found: Mapping[str, Obj | None] = field(repr=False)
    informed: str
    now: datetime
    policy: RotationPolicy = DATABASES
    stamp: str = ""

    @property
    def authority(self) -> str:
        """Name of the Secret with the certificate authorities; no pod mounts it."""
        return authority_secret(self.own.name)

    def next(self) -> tuple[str, tuple[WriteSecret, ...]]:
        """Return the reason and the writes that are due now; no writes if everything is as desired.

        Each event in the life of an authority is one write; the next one follows from what is observed after it.

        Raises:
            ForeignObject: a Secret of that name has another owner.
        """
        for name in (self.authority, *(leaf.secret for leaf in self.leaves)):
            if secret := self.found.get(name):
                require_owned(self._secret(name, {}), secret, self.own.uid)
        if self._is_replaced:
            return "introducing the certificate authority that replaced the former one", (self._write_authorities(),)
        event, why = rotation.next_event(self._authorities, self.now, informed=self._is_informed)
        if event is not None:
            return why, (self._write_authorities(event),)
        causes = {leaf: self._cause(leaf) for leaf in self.leaves}
        writes = tuple(write for leaf, cause in causes.items() if (write := self._write(leaf, cause)))
        whys = [f"{leaf.secret}: {cause}" for leaf, cause in causes.items() if cause]
        return "; ".join(whys) or "updating the trust bundle", writes

    @property
    def has_certificates(self) -> bool:
        """Whether every certificate exists."""
        return all(self._stored(leaf) is not None for leaf in self.leaves)

    @property
    def due(self) -> datetime | None:
        """Time of the next change; None if there is nothing to wait for yet."""
        stored, times = self._authorities, [former.ends for former in self._authorities.former]
        if stored.successor is not None:
            times.append(self._settled(stored.successor))
        elif stored.signer is not None:
            times.append(rotation.due(stored.signer.certificate))
        times += [rotation.due(certificate) for leaf in self.leaves if (certificate := self._stored(leaf))]
        return min(times, default=None)

    # Certificate authorities.

    @cached_property
    def _authorities(self) -> Authorities:
        """The authorities in the Secret; if none of them can sign, those that servers trust, as retired ones."""
        stored, trusted = self._in_secret, next(iter(self._bundles), ())
        usable = stored.usable(self.now)
        in_use = [certificate for leaf in self.leaves if (certificate := self._stored(leaf))]
        if self._is_replaced:
            return stored.introducing(trusted).bounded(self.now, in_use)
        if usable.signer or usable.successor:
            return stored
        former = (Authority(AuthorityState.RETIRED, each) for each in trusted)
        return Authorities(tuple(former)).bounded(self.now, in_use)

    @cached_property
    def _in_secret(self) -> Authorities:
        return stores.authorities_of(self.found.get(self.authority))

    @cached_property
    def _bundles(self) -> list[tuple[Certificate, ...]]:
        """The trust bundles of servers and clients, as far as there are any."""
        found = (stores.certificates_in(self.found.get(leaf.secret)) for leaf in self.leaves)
        return [bundle for bundle in found if bundle]

    @cached_property
    def _is_replaced(self) -> bool:
        """Whether neither servers nor clients trust the signer: a person replaced the one that they trust.

        The operator itself lets an authority sign only once it is in every bundle.
        """
        signer, bundles = self._in_secret.usable(self.now).signer, self._bundles
        return signer is not None and bool(bundles) and all(signer.certificate not in each for each in bundles)

    @property
    def _is_informed(self) -> bool:
        """Whether every server and client trusts the successor and the settling time is over."""
        successor = self._authorities.successor
        if successor is None:
            return False
        newest = successor.certificate
        is_in_bundles = all(newest in stores.certificates_in(self.found.get(leaf.secret)) for leaf in self.leaves)
        return is_in_bundles and self.informed == stores.fingerprint(newest) and self._settled(successor) <= self.now

    def _settled(self, successor: Authority) -> datetime:
        return successor.certificate.begins + rotation.BACKDATED + self.policy.settling(self.policy.life)

    def _write_authorities(self, event: AuthorityEvent | None = None) -> WriteSecret:
        """Return the write of the Secret with the authorities after `event`; without one, as they are."""
        stored, order, keys = self._authorities, None, stores.LEAF_KEYS
        if event is AuthorityEvent.FORGET:
            stored = stored.usable(self.now)
        elif event is AuthorityEvent.PROMOTE:
            stored = stored.promoted()
        elif event is not None:
            order = self.policy.order_authority(self.own.name, self.now)
            keys = stores.KEYS[AUTHORITY.after(AuthorityState.MISSING, event)]
        # Keys of a person, or of a restored backup, are emptied: an apply removes only those that no other client owns.
        emptied = dict.fromkeys(stores.KEYS[AuthorityState.SIGNING], "") if event is None else {}
        emptied |= shared_keys(self.found.get(self.authority), stores.AUTHORITIES_KEYS, own=self.own.operator)
        made = self._secret(self.authority, emptied | stores.authorities_content(stored))
        return WriteSecret(made, self.found.get(self.authority), order, keys)

    # Certificates that they sign.

    def _stored(self, leaf: CertificateRequest) -> Certificate | None:
        issued = stores.issued_in(self.found.get(leaf.secret))
        return issued.certificate if issued else None

    def _cause(self, leaf: CertificateRequest) -> str:
        """Return the reason to issue a certificate; empty if there is none."""
        stored = self._stored(leaf)
        fits = stored is not None and stored.hosts == frozenset(leaf.hosts)
        return rotation.why_replaced(stored, self._authorities.signer, self.now, fits=fits)

    def _write(self, leaf: CertificateRequest, cause: str) -> WriteSecret | None:
        seen, trusted, present = self.found.get(leaf.secret), self._authorities.trusted, self._stored(leaf)
        if cause:
            signer = self._authorities.signer or self._authorities.successor
            order = self.policy.order_certificate(leaf.name, leaf.hosts, signer, self.now, client=True)
            bundle = stores.trust_content(trusted, signer.certificate if signer else None)
            return WriteSecret(self._stamped(leaf.secret, bundle), seen, order)
        issuer = next((each for each in trusted if present and each.subject == present.issuer), None)
        bundle = stores.trust_content(trusted, issuer)
        content = bundle | {key: content_of(seen).get(key, "") for key in stores.LEAF_KEYS}
        written = (record_of(seen, self.own.operator) or {}).get("f:data", {}) if seen is not None else {}
        has_former = any(key.startswith("f:") and key[2:] not in content for key in written)  # such as of an authority
        is_kept = has_content(seen, content) and not has_former
        is_kept = is_kept and not (self.stamp and settled_at(seen, self.stamp, self.now) is None)
        return None if is_kept else WriteSecret(self._stamped(leaf.secret, content), seen)

    def _stamped(self, name: str, content: Mapping[str, str]) -> Obj:
        """Return the Secret of a certificate, with the time of the last change of its trust bundle."""
        made, seen = self._secret(name, content), self.found.get(name)
        if self.stamp:
            is_same = content_of(seen).get(AUTHORITY_KEY) == content[AUTHORITY_KEY]
            is_known = is_same and settled_at(seen, self.stamp, self.now) is not None
            since = annotation(seen, self.stamp) if is_known else self.now.isoformat(timespec="seconds")
            made["metadata"]["annotations"] = {self.stamp: since}
        return made

    def _secret(self, name: str, content: Mapping[str, str]) -> Obj:
        kind = "Opaque" if name == self.authority else "kubernetes.io/tls"
        return self.own.object(SECRET, name, component=self.component, data=encoded(content)) | {"type": kind}


def require_valid_certificates(validity: Mapping[str, Validity], now: datetime) -> Step:
    """Change nothing while a certificate is outside its validity: a restarted server could not connect to the others.

    Args:
        validity: periods of the certificates in use, by name of the Secret.
    """
    for name, period in sorted(validity.items()):
        if period.ends <= now:
            message = (
                f"spec.tls: Secret {name}: the certificate, or its authority, ended at {_time(period.ends)}. "
                "Clients and peers reject it, and servers are not changed until it is replaced. Renew it."
            )
            return Step.wait(CERTIFICATE_EXPIRED, message, warning=True, requeue=SECRETS_RETRY_SECONDS)
        if period.begins > now:
            message = (
                f"spec.tls: Secret {name}: the certificate, or its authority, is valid from {_time(period.begins)}. "
                "Clients and peers reject it until then, and servers are not changed. Wait, or replace it."
            )
            return Step.wait(CERTIFICATE_NOT_YET_VALID, message, warning=True, requeue=SECRETS_RETRY_SECONDS)
    changes = (period.next_change(now) for period in validity.values())
    following_change = min((each for each in changes if each is not None), default=None)
    if following_change is None or following_change - now > RENEWAL_WINDOW:
        return PASS
    return Step(requeue=max((following_change - now).total_seconds(), 1.0))


def report_invalid_certificates(validity: Mapping[str, Validity], now: datetime) -> Step:
    """Report a certificate outside its validity without stopping the steps that create what a repair needs."""
    step = require_valid_certificates(validity, now)
    return step if step.progress is Progress.DONE else replace(step, progress=Progress.PROGRESSING)


def report_withheld_certificates(copies: Iterable[CopiedCertificate], now: datetime) -> Step:
    """Report a certificate that is not copied because it has ended or is not valid yet: servers keep the former one."""
    for copied in copies:
        if (periods := copied.withheld(now)) is None:
            continue
        name, (period, kept) = copied.source, periods
        former = _time(kept.ends)
        if period.ends <= now:
            message = (
                f"spec.tls: Secret {name}: the certificate, or its authority, ended at {_time(period.ends)}. Servers "
                f"keep the former certificate, which is valid until {former}. Renew it."
            )
            return Step.progressing(CERTIFICATE_EXPIRED, message, warning=True, requeue=SECRETS_RETRY_SECONDS)
        message = (
            f"spec.tls: Secret {name}: the certificate, or its authority, is valid from {_time(period.begins)}. Until "
            f"then servers keep the former certificate, which is valid until {former}. Wait, or replace it."
        )
        return Step.progressing(CERTIFICATE_NOT_YET_VALID, message, warning=True, requeue=SECRETS_RETRY_SECONDS)
    return PASS


def report_ending_certificates(validity: Mapping[str, Validity], now: datetime) -> Step:
    """Report certificates that end soon; the resource stays ready until then."""
    ending = sorted((period.ends, name) for name, period in validity.items() if period.warns <= now < period.ends)
    if not ending:
        return PASS
    found = ", ".join(f"Secret {name} at {_time(ends)}" for ends, name in ending)
    message = f"Certificates end soon and were not renewed: {found}. Renew them before that."
    return Step.note(CERTIFICATE_EXPIRING, message)


def _time(of: datetime) -> str:
    return f"{of:%Y-%m-%d %H:%M UTC}"


COPY_SETTLING = timedelta(minutes=5)
"""Time for servers and clients to load a changed copy: the kubelet updates a mounted Secret within two minutes."""


@dataclass(frozen=True)
class Copying:
    """The next writes to the copies of certificates that others issue (shared/pki/copies.py).

    Attributes:
        own: owner of the copies.
        component: component label of the copies.
        copies: certificates with their copies.
        found: the Secrets as observed, by name; None for one that does not exist.
        stamp: annotation of a copy with the time of its last change.
        informed: whether every running server started with the trust bundles of the copies, and new ones will.
        keeps_former: see `following`.
    """

    own: Owner
    component: str
    copies: tuple[CopiedCertificate, ...]
    found: Mapping[str, Obj | None] = field(repr=False)
    stamp: str
    informed: bool
    now: datetime
    keeps_former: bool

    def step(self) -> Step:
        """Return the writes that are due; while a change is not complete, the next stage and its precondition."""
        try:
            made = [(why, write) for copied in self.copies for why, write in self._writes(copied)]
        except ForeignObject as error:
            return Step.blocked(FOREIGN_OBJECT, str(error))
        if made:
            why = "; ".join(f"{write.obj['metadata']['name']}: {why}" for why, write in made)
            writes = (write for _, write in made)
            return Step.wait(REPLACING_CERTIFICATES, f"Updating the certificates that servers mount: {why}.", *writes)
        waiting = [copied for copied in self.copies if self._following(copied, informed=True)[1] is not None]
        if not waiting:
            return PASS
        sources = ", ".join(copied.source for copied in waiting)
        if not self.informed:
            what = f"{sources}: every server must trust the new certificate authority before its certificate is used."
            return Step.progressing(REPLACING_CERTIFICATES, what)
        settled = max(self._settled(copied) or self.now for copied in waiting)
        what = f"{sources}: the next step follows at {settled:%H:%M:%S UTC}, when all mounted files are up to date."
        return Step.progressing(REPLACING_CERTIFICATES, what, requeue=max((settled - self.now).total_seconds(), 1.0))

    def _writes(self, copied: CopiedCertificate) -> Iterator[tuple[str, WriteSecret]]:
        settled = self._settled(copied)
        is_applied = self.informed and settled is not None and settled <= self.now
        why, desired = self._following(copied, informed=is_applied)
        if desired is None and settled is None and self._following(copied, informed=True)[1] is not None:
            why, desired = "recording the time of the last change", copied.copy
        if desired is None:
            return
        made = self.own.object(SECRET, copied.name, component=self.component, data=encoded(desired.content()))
        made["metadata"]["annotations"] = {self.stamp: self.now.isoformat(timespec="seconds")}
        seen = self.found.get(copied.name)
        if seen is not None:
            require_owned(made, seen, self.own.uid)
        yield why, WriteSecret(made | {"type": "kubernetes.io/tls"}, seen)

    def _following(self, copied: CopiedCertificate, *, informed: bool) -> tuple[str, TrustedCertificate | None]:
        return following(copied.copy, copied.original, informed=informed, now=self.now, keeps_former=self.keeps_former)

    def _settled(self, copied: CopiedCertificate) -> datetime | None:
        return settled_at(self.found.get(copied.name), self.stamp, self.now)


def settled_at(copy: Obj | None, stamp: str, now: datetime = LATEST) -> datetime | None:
    """Return when every mounted file has the content of a Secret; None if the time of its change is unknown.

    Args:
        copy: the Secret.
        stamp: annotation of the Secret with the time of its last change.
        now: a later time counts as unknown, so that it is written again.
    """
    changed = time_in(annotation(copy, stamp), now)
    return changed + COPY_SETTLING if changed else None


def cert_manager_certificates(
    own: Owner, component: str, leaves: Iterable[CertificateRequest], issuer: Issuer
) -> tuple[Obj, ...]:
    """Return cert-manager's Certificates, each with the name of the Secret that it fills."""
    return tuple(
        own.object(
            CERTIFICATE,
            leaf.secret,
            component=component,
            spec={
                "secretName": leaf.secret,
                **_names(leaf),
                "usages": ["digital signature", "client auth", *(["server auth"] if leaf.hosts else [])],
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "issuerRef": {"group": CERTIFICATE.group, "kind": issuer.kind, "name": issuer.name},
            },
        )
        for leaf in leaves
    )


MAX_COMMON_NAME = 64
"""Maximum length of a common name (RFC 5280, ub-common-name-length); cert-manager refuses longer ones."""


def _names(leaf: CertificateRequest) -> Obj:
    addresses = [host for host in leaf.hosts if host == "::1" or host[0].isdigit()]
    names = [host for host in leaf.hosts if host not in addresses]
    found = {
        "commonName": leaf.name[:MAX_COMMON_NAME],
        "dnsNames": names,
        "ipAddresses": addresses,
        "uris": [leaf.uri] if leaf.uri else [],
    }
    return {key: given for key, given in found.items() if given}
