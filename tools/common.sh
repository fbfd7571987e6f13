# For the scripts beside it: what has to be installed, and how they talk. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# To build the library and its programs, and to run workspaces over gVisor; to show them at work (a
# workspace sees the host's userland, so what it shall run is installed here); to test everything.
packages_to_build="meson ninja-build pkg-config gcc libc6-dev libuv1-dev libnghttp2-dev
  libprotobuf-c-dev protobuf-c-compiler libcjson-dev libmbedtls-dev
  libssl-dev libcurl4-openssl-dev libyaml-dev libwslay-dev libc-ares-dev runsc"
# Intel's, for Intel's and AMD's processors; the library does without it elsewhere.
[ "$(uname -m)" != x86_64 ] || packages_to_build="$packages_to_build libipsec-mb-dev"
packages_to_show="git python3 curl ca-certificates"
packages_to_check="g++ clang clang-tidy cppcheck check libclang-rt-14-dev pmccabe
  protobuf-compiler python3 python3-venv python3-grpcio python3-protobuf python3-pytest abigail-tools expect
  mandoc spin curl git procps iproute2 util-linux openssl
  python3-aiohttp python3-yaml python3-jsonschema
  swig python3-dev mypy shellcheck"
# Google's own package of it and Debian's exclude each other: either will do.
command -v kubectl >/dev/null || packages_to_check="$packages_to_check kubernetes-client"

# fail SENTENCE: say what went wrong and stop.
fail() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit 1
}

# As root, whoever runs the script.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

is_installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# install_missing PACKAGE…: installs those that are not there yet; says which. Asks for the lists of
# packages only if the installation fails without fresh ones.
install_missing() {
    local missing=() package
    command -v dpkg-query >/dev/null ||
        fail "this script installs packages with apt and needs Debian 12 or a system like it"
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "All packages that are needed are installed."
        return 0
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        fail "it needs root to install ${missing[*]}: run it as root, or install them first"
    fi
    echo "Installing: ${missing[*]}"
    if ! apt_install "${missing[@]}" >/dev/null 2>&1; then
        as_root apt-get -q update >/dev/null </dev/null ||
            fail "apt-get update failed: is there a network, and are the package sources right?"
        apt_install "${missing[@]}" || fail "apt-get could not install ${missing[*]}"
    fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y install --no-install-recommends "$@" </dev/null
}
