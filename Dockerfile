# One image an operator: docker build --build-arg OPERATOR=memcached .
# It holds the library, that one operator and its own dependencies, and runs as nobody on a read-only root file system.

FROM debian:trixie-slim AS build
RUN apt-get update -q \
 && apt-get install -q -y --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
ARG OPERATOR
# A machine behind an index of its own names it by --build-arg, and the authority that signs it by --secret id=ca,src=…
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
# The Kubernetes client's generated API classes (55 MB) go: the operators send plain dicts through its ApiClient. So does
# what botocore, where it is installed, knows of Amazon's services but S3. The rest is compiled now, for the root file
# system is read-only, but for the client's models, of which it loads three. Nor does an operator run its manifests/.
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
# USER for Python's getpass, which kopf asks: the user below, or any other that a cluster chooses, has no name in passwd.
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
