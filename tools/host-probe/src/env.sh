# Finds the Python of --venv or --conda. Sent in front of it: `venv` and `conda`, of which one may be set. find_env sets `prefix`, its
# folder, and `interpreter`; it says `noenv WHAT` and `cure TEXT` where there is none. No activation script is run.
# shellcheck disable=SC2154

venv_of() { # FOLDER
  prefix=$(at_home "$1")
  if [ ! -d "$prefix" ]; then
    no_env "no such folder: $prefix" "make it there: python3 -m venv $prefix"
  elif [ -d "$prefix/conda-meta" ]; then
    no_env "$prefix is a conda environment" "say --conda $prefix"
  fi
}

conda_of() { # NAME | FOLDER
  case $1 in
    */* | '~') prefix=$(at_home "$1")
      if [ ! -d "$prefix" ]; then
        no_env "no such folder: $prefix" "conda env list tells there which there are"
      elif [ ! -d "$prefix/conda-meta" ]; then
        no_env "$prefix is no conda environment: it has no conda-meta" "name a venv with --venv"
      fi
      return ;;
  esac
  roots=$(roots)
  if [ "$1" = base ]; then
    prefix=$(printf '%s\n' "$roots" | first_env)
  else
    prefix=$(envs_dirs | first_env "$1")
    # conda writes down what it makes elsewhere
    [ -n "$prefix" ] || prefix=$(grep '^/' "$HOME/.conda/environments.txt" 2>/dev/null |
      while IFS= read -r line; do case $line in */"$1") printf '%s\n' "$line" ;; esac; done | first_env)
  fi
  [ -z "$prefix" ] || return 0
  looked=$(envs_dirs | awk '!seen[$0]++' | while IFS= read -r folder; do [ ! -d "$folder" ] || printf ', %s' "$folder"; done)
  looked=${looked#, }
  no_env "no conda environment $1 in ${looked:-the places where conda usually is}" "conda env list tells there which there are; --conda takes a folder too"
}

no_env() { # WHAT CURE
  say noenv "$1"
  say cure "$2"
  prefix=
}

at_home() { # PATH
  # shellcheck disable=SC2088 # a tilde of the user's
  case $1 in '~' | '~/'*) printf '%s\n' "$HOME${1#?}" ;; *) printf '%s\n' "$1" ;; esac
}

# Where conda is: as this shell knows it, or where its installers put it; a shell that is no login shell knows nothing as a rule.
roots() {
  if [ -n "$CONDA_EXE" ]; then
    printf '%s\n' "${CONDA_EXE%/*/*}"
  elif command -v conda >/dev/null; then
    conda info --base 2>/dev/null </dev/null | grep '^/'
  fi
  for folder in "$MAMBA_ROOT_PREFIX" "$HOME/miniconda3" "$HOME/anaconda3" "$HOME/miniforge3" "$HOME/mambaforge" "$HOME/micromamba" \
    "$HOME/.local/share/mamba" /opt/conda /opt/miniconda3 /opt/anaconda3 /opt/miniforge3 /opt/mambaforge; do
    [ ! -d "$folder" ] || printf '%s\n' "$folder"
  done
}

# The folders that hold environments, in conda's order.
envs_dirs() {
  printf '%s\n' "$CONDA_ENVS_DIRS:$CONDA_ENVS_PATH" | tr : '\n' | grep '^/'
  { printf '%s\n' "$CONDARC" "$HOME/.condarc" "$HOME/.mambarc" "$HOME/.conda/.condarc" "$HOME/.conda/condarc" \
      "$HOME/.config/conda/.condarc" "$HOME/.config/conda/condarc" /etc/conda/.condarc /etc/conda/condarc
    printf '%s\n' "$roots" | sed 's,$,/.condarc,'; } |
    while IFS= read -r file; do [ ! -f "$file" ] || of_condarc <"$file"; done 2>/dev/null
  [ -z "$roots" ] || printf '%s\n' "$roots" | sed 's,$,/envs,'
  printf '%s\n' "$HOME/.conda/envs"
}

# The list envs_dirs of a condarc on stdin, as a block or in brackets, with ~ and $HOME written out.
of_condarc() {
  LC_ALL=C awk -v home="$HOME" '
    function folder(text) {
      sub(/[ \t]#.*/, "", text); gsub(/^[ \t"\047]+|[ \t\r"\047]+$/, "", text)
      if (text ~ /^~(\/|$)/) text = home substr(text, 2)
      else if (text ~ /^\$HOME(\/|$)/) text = home substr(text, 6)
      else if (text ~ /^\$\{HOME\}/) text = home substr(text, 8)
      if (text ~ /^\//) print text
    }
    /^envs_(dirs|path)[ \t]*:/ {
      list = 1
      if (sub(/^[^[]*\[/, "")) { list = 0; sub(/\].*/, ""); count = split($0, words, ","); for (i = 1; i <= count; i++) folder(words[i]) }
      next
    }
    list && /^[ \t]*-/ { sub(/^[ \t]*-/, ""); folder($0); next }
    /^[^ \t#]/ { list = 0 }'
}

# first_env [NAME]: of the folders on stdin the first that is an environment, or has one of that name
first_env() {
  while IFS= read -r folder; do
    folder=$folder${1:+/$1}
    [ ! -d "$folder/conda-meta" ] || { printf '%s\n' "$folder"; break; }
  done
}

# What conda calls `prefix`.
conda_name() {
  if [ -d "$prefix/condabin" ]; then echo base; return; fi
  case ${prefix%/*} in */envs) printf '%s\n' "${prefix##*/}" ;; *) printf '%s\n' "$prefix" ;; esac
}

find_env() {
  prefix='' interpreter=''
  if [ -n "$venv" ]; then venv_of "$venv"; elif [ -n "$conda" ]; then conda_of "$conda"; fi
  [ -n "$prefix" ] || return 0
  for name in python python3; do [ ! -x "$prefix/bin/$name" ] || interpreter=$prefix/bin/$name; done
  [ -n "$interpreter" ] || no_env "no bin/python3 in $prefix" "install Python into it, or name another environment"
}
