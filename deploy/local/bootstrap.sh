#!/bin/sh
# Makes .venv just as uv.lock says, on a machine that has Python 3.11+ and a way to its package registry.
set -eu
cd "$(dirname "$0")/../.."
UV_VERSION=0.13.9
HOME_OF_UV=.local/bootstrap
began=$(date +%s)
export UV_PYTHON_DOWNLOADS=never
# Compiled once now, not at each of the many process starts to come.
export UV_COMPILE_BYTECODE=1

say() { printf '  %3d s  %s\n' "$(($(date +%s) - began))" "$*"; }
fail() { printf 'plimsoll: %s\n' "$*" >&2; exit 1; }

find_python() {
    for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or later is missing; it runs everything. Bring it with: apt-get install python3"
}

# pip is the registry's client; Debian ships it apart from Python.
need_pip() {
    "$python" -m pip --version >/dev/null 2>&1 && return
    "$python" -m ensurepip --user >/dev/null 2>&1 && return
    command="apt-get install --yes --no-install-recommends python3-pip"
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail "pip is missing; it fetches uv. Bring it with: sudo $command"
    say "installing pip"
    { apt-get update -qq && $command -qq; } >/dev/null || fail "could not run: $command"
}

is_pinned() { [ "$("$1" --version 2>/dev/null | cut -d' ' -f2)" = "$UV_VERSION" ]; }

python=$(find_python)
uv="$HOME_OF_UV/bin/uv"
if ! is_pinned "$uv"; then
    if is_pinned uv; then
        uv=uv
    else
        need_pip
        say "fetching uv $UV_VERSION"
        rm -rf "$HOME_OF_UV"
        "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$HOME_OF_UV" "uv==$UV_VERSION" \
            || fail "uv $UV_VERSION could not be fetched; it installs every other package, as uv.lock says."
    fi
fi
[ -x .venv/bin/python ] || "$uv" venv --quiet --python "$python" .venv
say "packages of uv.lock into .venv"
"$uv" sync --all-packages --locked || fail "the packages of uv.lock could not be installed (see above)."
touch .venv/.synced
say "ready"
