#!/bin/bash
# Prints the directory with the OpenSSH client of a Debian release, for tests with other versions than this machine's.
#   openssh.sh RELEASE   bullseye has 8.4, bookworm 9.2, trixie 10.0
# Downloaded into the user's cache on the first call, with its loader and libraries. MIRROR is the address of an archive; without it that
# of this machine's apt is used. All else goes to stderr. Exit status 69: there can be none here, and why.
# shellcheck source=tests/venv.sh
. "$(dirname "$0")/venv.sh"

release=${1:?usage: openssh.sh RELEASE}
folder=$cache/openssh-$release
lock "openssh-$release"
if [ ! -e "$folder/complete" ]; then
    # shellcheck disable=SC2016 # apt's variable
    mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null | grep -v security | head -n 1)}
    [ -n "$mirror" ] || die "this machine's apt has no Debian: set MIRROR to the address of an archive"
    rm -rf "$folder"
    mkdir -p "$folder"/{bin,root,apt/lists/partial,apt/cache/archives/partial}
    : >"$folder/apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$folder/apt/sources.list"
    # no package counts as installed, so that all libraries come along
    apt=(apt-get -qq -o "Dir::Etc::sourcelist=$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache" -o "Dir::State::status=$folder/apt/status"
        -o Acquire::Languages=none -o APT::Sandbox::User=root)
    "${apt[@]}" update 9>&- || die "Debian's $release cannot be downloaded"
    "${apt[@]}" --yes --no-install-recommends --download-only install openssh-client patchelf 9>&- || die "openssh-client of $release cannot be downloaded"
    for package in "$folder"/apt/cache/archives/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
    rm -rf "$folder/apt"
    loader=$(find "$folder/root" -name 'ld-linux*.so.*' | sort | head -n 1)
    libraries=$(find "$folder/root" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd :)
    for program in ssh ssh-keygen ssh-add ssh-agent; do
        cp "$folder/root/usr/bin/$program" "$folder/bin/"
        "$loader" --library-path "$libraries" "$folder/root/usr/bin/patchelf" --set-interpreter "$loader" \
            --force-rpath --set-rpath "$libraries" "$folder/bin/$program"
    done
    "$folder/bin/ssh" -V || die "the ssh of $release does not run here"
    : >"$folder/complete"
fi
echo "$folder/bin" >&3
