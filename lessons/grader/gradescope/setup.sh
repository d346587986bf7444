#!/usr/bin/env bash
# Gradescope runs this once, when the autograder's image is made: installs what Lockstep is
# built from, and builds it. Grading needs no network after that.
#
# The image: Ubuntu 24.04 or later, or Debian 12 or later. On Ubuntu 22.04 it takes GCC 12
# and, from PyPI, Meson.

set -euo pipefail

here=${AUTOGRADER:-/autograder}/source
packages=(g++ ninja-build pkg-config python3 libeigen3-dev libfmt-dev libboost-context-dev
          libcli11-dev nlohmann-json3-dev libcmark-gfm-dev libcmark-gfm-extensions-dev libmd-dev)

gcc_version() { "$1" -dumpversion 2>/dev/null | cut -d . -f 1; }
has_meson_1() { [[ $(meson --version 2>/dev/null) =~ ^[1-9] ]]; }

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' ||
        missing+=("$package")
done
has_meson_1 || missing+=(meson)
if [[ ${#missing[@]} != 0 ]]; then
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
fi
if ! has_meson_1; then
    apt-get install -y --no-install-recommends python3-pip
    pip install 'meson>=1.0'
fi
if [[ $(gcc_version g++) -lt 12 ]]; then
    apt-get install -y --no-install-recommends g++-12
    echo 'export CXX=g++-12' >"$here/environment"
fi
touch "$here/environment"
# shellcheck source=/dev/null
. "$here/environment"

# For any processor: what makes the image need not be what grades. One at a time: memory may
# be small.
cd "$here/lockstep"
meson setup build -Dbuildtype=release -Dnative=false -Dgpu=disabled -Dtests=false
ninja -C build -j 1 lessons/lockstep grading

# Solutions are in the grader now, which can be run and not read.
rm -rf lessons/assignments/*/reference lessons/assignments/*/mistakes.txt \
    build/lessons/assignments/*_solutions*
strip build/lessons/lockstep-grader
chmod 711 build/lessons/lockstep-grader

# Students' programs run as another user, who may read what they are built with alone.
chmod 700 lessons program src sim gpu build/lessons/kit/assignments
