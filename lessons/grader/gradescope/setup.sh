#!/usr/bin/env bash
# Gradescope runs this once, when the autograder's image is made. It installs what Lockstep needs,
# and builds it. Grading then needs no network.
#
# The image: Ubuntu 24.04 or later, or Debian 12 or later. On Ubuntu 22.04 the script installs GCC
# 12 and, from PyPI, Meson.

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

# Build for any processor, because another machine may grade than made the image. Build one file
# at a time, because memory may be small.
cd "$here/lockstep"
meson setup build -Dbuildtype=release -Dnative=false -Dgpu=disabled -Dtests=false
ninja -C build -j 1 lessons/lockstep grading

# The solutions are now in the grader, which can be run but not read.
rm -rf lessons/assignments/*/reference lessons/assignments/*/mistakes.txt \
    build/lessons/assignments/*_solutions*
strip build/lessons/lockstep-grader
chmod 711 build/lessons/lockstep-grader

# Students' programs run as another user, who may read only what they are built with.
chmod 700 lessons program src sim gpu build/lessons/kit/assignments
