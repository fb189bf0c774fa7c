# A Debian 12 in a directory, for tests/bare.sh and tests/kernel.sh, which read this file.
# shellcheck shell=bash

# Lines for sources.list: what this machine's apt has for Debian 12.
debian_sources() {
    # shellcheck disable=SC2016 # apt's variables
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
        grep ' bookworm\(-updates\|-security\)\? main$' || true
}

# Makes it with those packages; MIRROR is the address of an archive. What is wrong goes to stderr: status 69 if there is no archive.
make_debian() { # FOLDER PACKAGE,PACKAGE...
    local lines mirror
    lines=$(debian_sources)
    [ -z "${MIRROR:-}" ] || lines="deb $MIRROR bookworm main"
    mirror=$(awk '$3 == "bookworm" { print $2; exit }' <<<"$lines")
    if [ -z "$mirror" ]; then
        echo "this machine's apt has no Debian 12: set MIRROR to the address of Debian's archive" >&2
        return 69
    fi
    rm -rf "$1" "$1.new"
    if ! debootstrap --variant=minbase --include="ca-certificates,$2" bookworm "$1.new" "$mirror" >"$1.log" 2>&1; then
        tail -n 20 "$1.log" >&2
        echo "debootstrap failed; more in $1.log" >&2
        return 1
    fi
    echo "$lines" >"$1.new/etc/apt/sources.list"
    echo force-unsafe-io >"$1.new/etc/dpkg/dpkg.cfg.d/fast" # what is thrown away need not outlive a power cut
    mv "$1.new" "$1"
}

# What it needs to know to reach the archive, as this machine does.
reach_archive() { # FOLDER
    local authorities=etc/ssl/certs/ca-certificates.crt
    cp /etc/resolv.conf "$1/etc/"
    [ ! -e "/$authorities" ] || cp "/$authorities" "$1/$authorities"
}
