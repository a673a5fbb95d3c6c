#!/bin/sh
# Run kubectl platform, as krew installs it. The first run of a version installs the packages of requirements.txt into a
# virtual environment. That needs Python 3.11 or later, and a package index, as pip is configured to use it.
set -eu
self=$0
while [ -L "$self" ]; do # krew links to this file; not every readlink has the option -f
    target=$(readlink "$self")
    case $target in /*) self=$target ;; *) self=$(dirname "$self")/$target ;; esac
done
here=$(cd "$(dirname "$self")" && pwd)
version=$(cat "$here/VERSION")
root=${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-platform/$version

if [ ! -e "$root/complete" ]; then
    python=
    for each in "${PLATFORM_PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
            python=$each
            break
        fi
    done
    if [ -z "$python" ]; then
        echo "error: kubectl platform needs Python 3.11 or later, and none was found" >&2
        echo "  fix: install it, or set PLATFORM_PYTHON to its path" >&2
        exit 1
    fi
    echo "Installing kubectl platform $version into $root, once." >&2
    mkdir -p "$root"
    "$python" -m venv --clear "$root/venv"
    install() {
        "$root/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$@"
    }
    install --only-binary :all: --require-hashes --requirement "$here/requirements.txt"
    install --no-index "$here"/*.whl
    : > "$root/complete"
fi
exec "$root/venv/bin/kubectl-platform" "$@"
