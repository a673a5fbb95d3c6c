#!/bin/sh
# Install a lock into a directory of an image: install.sh LOCK DIRECTORY ARCHITECTURE (amd64 or arm64, as in the Dockerfile).
# Nothing of the result is executed, so the machine that builds may have another architecture.
set -eu
lock=$1 directory=$2
case $3 in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; *) echo "error: no wheels for $3; use amd64 or arm64" >&2; exit 1 ;; esac

mkdir -p "$directory"
if grep -q == "$lock"; then  # the lock of an operator without further dependencies is empty
    uv pip install --quiet --no-cache --no-deps --require-hashes --only-binary :all: \
        --target "$directory" --python-platform "$machine-manylinux_2_40" --requirement "$lock"
fi
# Remove unused files: the generated API classes of the Kubernetes client (55 MB; the operators send plain dicts through
# its ApiClient), and botocore's data for services other than S3.
rm -rf "$directory/bin" "$directory/kubernetes/client/api" "$directory/kubernetes/aio/client/api"
find "$directory" -path '*/botocore/data/*' -prune -type d ! -name s3 -exec rm -rf {} +
# Compile now, because the root file system is read-only; not the client's models, of which only three are loaded.
python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/kubernetes/(aio/)?client/models/' "$directory"
