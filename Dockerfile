# One image per operator: docker build --build-arg OPERATOR=memcached .
# It contains the library, one operator and its dependencies. It runs as UID 65532 on a read-only root file system.
#
# The images of all operators share the layers of BASE and of locks/common.txt. Every RUN executes on the machine that
# builds and installs for the architecture of the image, so no architecture needs emulation.

ARG BASE=docker.io/library/python:3.13-slim-trixie
# Differs from BASE only where one name cannot hold several architectures.
ARG BUILD_BASE=${BASE}

FROM --platform=$BUILDPLATFORM ${BUILD_BASE} AS tools
# Optional: a package index (--build-arg PIP_INDEX_URL=…) and the CA that signed its certificate (--secret id=ca,src=…).
ARG PIP_INDEX_URL
ENV PATH=/opt/tools/bin:/usr/local/bin:/usr/bin:/bin
COPY locks/build.txt locks/install.sh /build/
RUN --mount=type=secret,id=ca,required=false \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi \
 && python3 -m venv /opt/tools \
 && pip install --quiet --no-cache-dir --no-compile --disable-pip-version-check --require-hashes --no-deps \
        --requirement /build/build.txt

FROM tools AS common
ARG PIP_INDEX_URL
ARG TARGETARCH
COPY locks/common.txt /build/
RUN --mount=type=secret,id=ca,required=false \
    if [ -f /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi \
 && if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX=$PIP_INDEX_URL; fi \
 && /build/install.sh /build/common.txt /opt/common $TARGETARCH

FROM tools AS operator
ARG OPERATOR
ARG PIP_INDEX_URL
ARG TARGETARCH
COPY locks/${OPERATOR}.txt /build/operator.txt
RUN --mount=type=secret,id=ca,required=false \
    if [ -f /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi \
 && if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX=$PIP_INDEX_URL; fi \
 && /build/install.sh /build/operator.txt /opt/operator $TARGETARCH
COPY shared /opt/app/shared
COPY operators/__init__.py /opt/app/operators/
COPY operators/${OPERATOR} /opt/app/operators/${OPERATOR}
RUN rm -rf /opt/app/operators/*/manifests \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/app

FROM ${BASE}
# USER is for Python's getpass, which kopf calls: the UID below, or one that a cluster assigns, has no entry in passwd.
ENV USER=operator \
    PATH=/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/app:/opt/operator:/opt/common \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /opt/app
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/bin/sh", "-c", "exec python3 -m operators.${OPERATOR} \"$@\"", "operator"]
COPY --from=common /opt/common /opt/common
COPY --from=operator /opt/operator /opt/operator
COPY --from=operator /opt/app /opt/app
ARG OPERATOR
ARG VERSION
ARG REVISION
ENV OPERATOR=${OPERATOR}
LABEL org.opencontainers.image.title="${OPERATOR}-operator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
