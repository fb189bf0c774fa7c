#!/bin/sh
# Makes the site of static pages in target/site: the tutorials, the manual, and the other documents of the repository. It needs cmark-gfm
# and mandoc.
# Exit status 69: one of them is missing.
set -eu
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/site

for program in cmark-gfm mandoc; do
  command -v "$program" >/dev/null || {
    printf 'build.sh: %s is missing\n  fix: install it (Debian: apt-get install %s)\n' "$program" "$program" >&2
    exit 69
  }
done

# The tutorials in the order in which they are read, and the guides of the manual.
TUTORIALS='torch dgl graphstorm slurm hang other compare'
GUIDES='dgl-tools.7 dgl-tools-jobs.7 dgl-tools-clusters.7 dgl-tools-connect.7 dgl-tools-partition.7 dgl-tools-trouble.7 dgl-tools-stalls.7 dgl-tools-faq.7
  dgl-tools-admin.7 dgl-tools-records.5'

title_of() { # NAME of a page
  if [ -e "site/tutorials/$1.md" ]; then
    sed -n '/^# / { s///p; q }' "site/tutorials/$1.md"
  else
    echo "${1%.*}(${1##*.})"
  fi
}

# Links to the pages before and after this one, where it is one of a row.
neighbours() { # NAME
  for row in "$TUTORIALS" "$GUIDES"; do
    before=
    found=
    for name in $row; do
      if [ -n "$found" ]; then
        printf '<a rel="next" href="%s.html">%s →</a>' "$name" "$(title_of "$name")"
        break
      elif [ "$name" = "$1" ]; then
        found=1
        printf '<footer>'
        [ -z "$before" ] || printf '<a rel="prev" href="%s.html">← %s</a>' "$before" "$(title_of "$before")"
      fi
      before=$name
    done
    [ -z "$found" ] || printf '</footer>\n'
  done
}

page() { # NAME TITLE; the content comes from stdin
  {
    cat <<END
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$2</title>
<link rel="stylesheet" href="style.css">
</head>
<body>
<nav><a href="index.html">dgl-tools</a> <a href="torch.html">torch</a> <a href="dgl.html">DGL</a>
<a href="graphstorm.html">GraphStorm</a> <a href="slurm.html">Slurm</a> <a href="hang.html">it hangs</a>
<a href="dgl-tools-trouble.7.html">messages</a> <a href="manual.html">manual</a>
<form action="manual.html" role="search"><input type="search" name="q" placeholder="Search, or paste a message" aria-label="Search the site"></form></nav>
<main>
END
    cat
    neighbours "$1"
    printf '</main>\n</body>\n</html>\n'
  } | sed "/^<nav>/,/<\\/nav>/s/<a href=\"$1.html\"/& aria-current=\"page\"/" >"$out/$1.html"
}

markdown() { # FILE NAME
  # a link to another document of the repository leads to its page; releases are elsewhere
  cmark-gfm -e table "$1" | sed -E -e 's/href="(site\/tutorials\/)?([A-Za-z]+)\.md(["#])/href="\L\2.html\3/g' \
    -e 's#<a href="../../releases">([^<]*)</a>#\1#' -e 's#src="site/pictures/#src="pictures/#g' -e 's/ class="language-[a-z]*"//g' |
    flags | anchors >"$out/$2"
  { contents <"$out/$2"; cat "$out/$2"; } | page "$2" "$(sed -n '/^# / { s///p; q }' "$1")"
  case $1 in site/tutorials/* | README.md) entries "$2" <"$out/$2" >>"$out/entries.js" ;; esac
  rm "$out/$2"
}

# A flag in a sentence is not broken after its first dash.
flags() {
  sed -E '/<pre>/b
    :flag
    s/(<code[^>]*>(([^<]|<\/?span>)*[ (])?)(--[a-z][a-z-]*)/\1<span>\4<\/span>/
    t flag'
}

# An id for each heading, by which GitHub links to it too: "Where to change what" is where-to-change-what.
anchors() {
  awk '{
    if (match($0, /^<h[1-3]>.*<\/h[1-3]>$/)) {
      id = tolower(substr($0, 5, length($0) - 9))
      gsub(/<[^>]*>|&[a-z]*;/, "", id); gsub(/[^a-z0-9 _-]/, "", id); gsub(/ /, "-", id)
      if (ids[id]++) id = id "-" ids[id] - 1
      $0 = substr($0, 1, 3) " id=\"" id "\"" substr($0, 4)
    }
    print
  }'
}

# "Section in page(7)", and "page(7): Section; Section": the link of a section leads to that page.
of_other_pages() {
  # \x01 marks where the next entry of a list begins
  sed -zE 's/<dt/\x01<dt/g
    :list
    s/(<a class="Xr" href="([a-z][^":#]*)">[^<]*<\/a>:[^:\x01]*<a class="Sx" href=")#/\1\2#/
    t list
    s/\x01//g
    s/(<a class="Sx" href=")(#[^"]*">[^<]*<\/a>[[:space:]]+in[[:space:]]+<a class="Xr" href=")([a-z][^":#]*)/\1\3\2\3/g'
}

# What search.js searches: each section and each item of a list, with its text, from a page on stdin.
entries() { # PAGE
  awk -v page="$1" -v RS='<' '
    function plain(text) {
      gsub(/[[:space:]]+/, " ", text); gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text)
      gsub(/&#x[0-9A-Fa-f]*;/, " ", text); gsub(/&amp;/, "\\&", text); gsub(/[\\"]/, "\\\\&", text)
      return text
    }
    function entry() {
      if (id != "") printf "[\"%s\",\"%s\",\"%s\",\"%s\"],\n", page, id, plain(title), plain(body)
      title = body = ""
    }
    {
      tag = text = $0
      sub(/>.*/, "", tag)
      sub(/^[^>]*>/, "", text)
      if (match(tag, /^(h1|h2|h3|dt) .*id="[^"]*"/)) {
        entry()
        id = substr(tag, RSTART, RLENGTH - 1)
        sub(/.*id="/, "", id)
        in_title = 1
      } else if (match(tag, /^\/(h1|h2|h3|dt)$/)) {
        in_title = 0
        text = " " text
      } else if (tag ~ /^(p|dt|dd|li|br|div|pre)/) {
        text = " " text
      }
      if (in_title) title = title text; else body = body text
    }
    END { entry() }'
}

# The sections of a page, beside its text where the window is wide. A page of the manual has them as h1 and h2, another as h2 and h3.
contents() {
  printf '<aside aria-label="On this page"><ul>\n'
  sed -zE 's/\n +/ /g' | awk '
    match($0, /<h[1-3] [^>]*id="[^"]*"/) {
      head = substr($0, RSTART, RLENGTH)
      level = substr(head, 3, 1) - (head !~ /class="S/)
      id = head; sub(/.*id="/, "", id); sub(/"$/, "", id)
      title = substr($0, RSTART + RLENGTH + 1); sub(/<\/h[1-3]>.*/, "", title); gsub(/<[^>]*>/, "", title)
      if (level > 0) printf "<li class=\"level%d\"><a href=\"#%s\">%s</a>\n", level, id, title
    }'
  printf '</ul></aside>\n'
}

rm -rf "$out"
mkdir -p "$out"
cp -r site/style.css site/search.js site/pictures examples "$out"
cp -r examples/torch/code "$out"

echo 'const entries = [' >"$out/entries.js"
markdown site/index.md index
for tutorial in $TUTORIALS; do
  markdown "site/tutorials/$tutorial.md" "$tutorial"
done
for text in README CHANGELOG ARCHITECTURE CONTRIBUTING SECURITY; do
  markdown "$text.md" "$(printf %s "$text" | tr '[:upper:]' '[:lower:]')"
done

about() { sed -n '/^\.Nd / { s///p; q }' "$1"; }
for manual in man/*; do
  name=${manual##*/}
  # a page that is not in this directory is one of the system
  (cd man && mandoc -T html -O 'fragment,man=%N.%S.html;https://manpages.debian.org/%N.%S' "$name") |
    of_other_pages | flags >"$out/$name"
  {
    contents <"$out/$name"
    printf '<h1 class="title">%s</h1>\n' "$(title_of "$name")"
    cat "$out/$name"
  } | page "$name" "$(title_of "$name"): $(about "$manual")"
  # a link is a second name of a page
  [ -L "$manual" ] || entries "$name" <"$out/$name" >>"$out/entries.js"
  rm "$out/$name"
done
# Words of messages, by which dgl-why recognizes them, for the entry of dgl-tools-trouble(7) that explains them.
{
  echo ']; const words = {'
  awk '
    function quoted(text) { gsub(/[\\"]/, "\\\\&", text); return text }
    /^packages: / { count = split(tolower(substr($0, 11)), packages, " ") }
    /^messages: / { messages = substr($0, 11) }
    /^words: / { words = substr($0, 8) }
    /^when: package, no environment/ {
      words = ""
      for (i = 1; i <= count; i++) words = words "no module named \047" packages[i] "\047 | "
      next
    }
    /^when: / { words = words " & " substr($0, 7) }
    /^do: / { printf "\"%s\":\"%s\",\n", quoted(messages), quoted(words) }
  ' common/verdict/src/advice.txt
  echo '}'
} >>"$out/entries.js"
entry() { # FILE
  printf '<dt><a href="%s.html">%s</a></dt><dd>%s</dd>\n' "${1##*/}" "${1##*/}" "$(about "$1")"
}
{
  printf '<h1>Manual pages</h1>\n<div id="found"></div>\n<h2>guides and records</h2>\n<dl>\n'
  for manual in man/*.7 man/*.5; do entry "$manual"; done
  # the groups of the tools
  tools/dgl-tools/dgl-tools | sed -n '/^core$/,/^$/p' | while read -r word rest; do
    if [ -e "man/$word.1" ]; then
      entry "man/$word.1"
    elif [ -n "$word" ]; then
      printf '</dl>\n<h2>%s</h2>\n<dl>\n' "$word${rest:+ $rest}"
    fi
  done
  printf '</dl>\n<h2>on the hosts</h2>\n<dl>\n'
  entry man/host-agent.1
  printf '</dl>\n<script src="entries.js"></script>\n<script src="search.js"></script>\n'
} | page manual 'Manual pages'
echo "$out/index.html"
