#!/bin/bash
# Prints the directory with torchfrtrace, torch's analyser of the dumps of its flight recorder. The analyser is pure Python and needs nothing else
# of torch, so it is taken from torch's smallest package, which is that for macOS (80 MB); the one for Linux brings 4 GB of CUDA.
# A venv in the user's cache, made on the first call; in continuous integration (CI is set) pip tries it several times, elsewhere once.
# All else goes to stderr. Exit status 69: there can be none here, and why.
# shellcheck source=tests/venv.sh
. "$(dirname "$0")/venv.sh"

version=2.10.0
venv=$cache/torchfrtrace-$version
lock "torchfrtrace-$version"
if [ ! -e "$venv/complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" || die "python3 cannot make a venv"
    pauses=(0) options=(--retries 0 --timeout 15)
    [ -z "${CI:-}" ] || pauses=(0 5 20) options=(--retries 5)
    for pause in "${pauses[@]}"; do
        sleep "$pause"
        ! "$venv/bin/python" -m pip install --quiet --no-cache-dir --no-compile "${options[@]}" --no-deps --only-binary :all: \
            --platform macosx_11_0_arm64 --python-version 3.11 --implementation cp --target "$venv/all" "torch==$version" 9>&- || break
    done
    packages=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
    mkdir -p "$packages/torch/distributed"
    touch "$packages/torch/__init__.py" "$packages/torch/distributed/__init__.py"
    [ -e "$venv/all/bin/torchfrtrace" ] || die "pip cannot install torch==$version"
    mv "$venv/all/torch/distributed/flight_recorder" "$packages/torch/distributed/"
    mv "$venv/all/bin/torchfrtrace" "$venv/bin/"
    rm -rf "$venv/all"
    "$venv/bin/torchfrtrace" --help >/dev/null || die "torchfrtrace does not start"
    : >"$venv/complete"
fi
echo "$venv/bin" >&3
