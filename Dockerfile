# One image per operator: docker build --build-arg OPERATOR=memcached .
# It contains the library, one operator and its dependencies. It runs as UID 65532 on a read-only root file system.

FROM debian:trixie-slim AS build
RUN apt-get update -q \
 && apt-get install -q -y --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
ARG OPERATOR
# Optional: a package index (--build-arg PIP_INDEX_URL=…) and the CA that signed its certificate (--secret id=ca,src=…).
ARG PIP_INDEX_URL
COPY locks/${OPERATOR}.txt /build/lock.txt
RUN --mount=type=secret,id=ca,required=false \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi \
 && python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --quiet --no-cache-dir --no-compile --require-hashes --no-deps --requirement /build/lock.txt \
 && /opt/venv/bin/pip uninstall --quiet --yes pip
COPY shared /opt/app/shared
COPY operators/__init__.py /opt/app/operators/
COPY operators/${OPERATOR} /opt/app/operators/${OPERATOR}
# Remove unused files: the generated API classes of the Kubernetes client (55 MB; the operators send plain dicts through
# its ApiClient), botocore's data for services other than S3, and manifests/, which only the build uses. Compile the rest
# now, because the root file system is read-only; not the client's models, of which only three are loaded.
RUN rm -rf /opt/app/shared/testing /opt/app/operators/*/manifests /opt/venv/lib/python3*/site-packages/kubernetes/client/api \
    /opt/venv/lib/python3*/site-packages/kubernetes/aio/client/api \
 && find /opt/venv/lib/python3*/site-packages -path '*/botocore/data/*' -prune -type d ! -name s3 -exec rm -rf {} + \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/kubernetes/(aio/)?client/models/' \
    /opt/venv/lib /opt/app

FROM debian:trixie-slim
RUN apt-get update -q \
 && apt-get install -q -y --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* /var/log/*
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/app /opt/app
ARG OPERATOR
# USER is for Python's getpass, which kopf calls: the UID below, or one that a cluster assigns, has no entry in passwd.
ENV OPERATOR=${OPERATOR} \
    USER=operator \
    PATH=/opt/venv/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /opt/app
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/bin/sh", "-c", "exec python -m operators.${OPERATOR} \"$@\"", "operator"]
