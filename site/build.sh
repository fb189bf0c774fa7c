#!/bin/sh
# Makes the site of static pages in target/site: the tutorials, the manual, the README and the changelog. It needs cmark-gfm and mandoc.
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
<a href="graphstorm.html">GraphStorm</a> <a href="hang.html">it hangs</a> <a href="dgl-tools-trouble.7.html">trouble</a>
<a href="manual.html">manual</a>
<form action="manual.html" role="search"><input type="search" name="q" placeholder="Search the manual" aria-label="Search the manual"></form></nav>
<main>
END
    cat
    printf '</main>\n</body>\n</html>\n'
  } | sed "/^<nav>/,/<\\/nav>/s/<a href=\"$1.html\"/& aria-current=\"page\"/" >"$out/$1.html"
}

markdown() { # FILE NAME
  # a link to another page of the repository leads to the page of the site, or to its text
  cmark-gfm -e table "$1" | sed -e 's/href="CHANGELOG.md"/href="changelog.html"/g' -E -e 's#href="site/tutorials/([a-z]+).md"#href="\1.html"#g' -e 's#src="site/pictures/#src="pictures/#g' -e 's/class="language-[a-z ]*"//g' |
    page "$2" "$(sed -n 's/^# //p; /^# /q' "$1")"
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

# What search.js searches: each section and each item of a list, with its text, from a page of the manual on stdin.
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
      if (match(tag, /^(h1|h2|dt) .*id="[^"]*"/)) {
        entry()
        id = substr(tag, RSTART, RLENGTH - 1)
        sub(/.*id="/, "", id)
        in_title = 1
      } else if (match(tag, /^\/(h1|h2|dt)$/)) {
        in_title = 0
        text = " " text
      } else if (tag ~ /^(p|dt|dd|li|br|div|pre)/) {
        text = " " text
      }
      if (in_title) title = title text; else body = body text
    }
    END { entry() }'
}

# The sections of a page of the manual.
contents() {
  printf '<details><summary>Sections</summary><ul>\n'
  sed -zE 's/\n +/ /g' |
    sed -nE 's#.*<h([12]) class="S[hs]" id="([^"]*)">.*>([^<]+)</a></h[12]>.*#<li class="level\1"><a href="\#\2">\3</a>#p'
  printf '</ul></details>\n'
}

rm -rf "$out"
mkdir -p "$out"
cp -r site/style.css site/search.js site/pictures examples "$out"
cp -r examples/torch/code "$out"
for text in ARCHITECTURE CONTRIBUTING SECURITY; do cp "$text.md" "$out"; done

markdown site/index.md index
for tutorial in site/tutorials/*.md; do
  name=${tutorial##*/}
  markdown "$tutorial" "${name%.md}"
done
markdown README.md readme
markdown CHANGELOG.md changelog

echo 'const entries = [' >"$out/entries.js"
for manual in man/*; do
  name=${manual##*/}
  # a page that is not in this directory is one of the system
  (cd man && mandoc -T html -O 'fragment,man=%N.%S.html;https://manpages.debian.org/%N.%S' "$name") |
    of_other_pages >"$out/$name"
  { contents <"$out/$name"; cat "$out/$name"; } | page "$name" "$name"
  entries "$name" <"$out/$name" >>"$out/entries.js"
  rm "$out/$name"
done
echo ']' >>"$out/entries.js"
entry() { # FILE
  printf '<dt><a href="%s.html">%s</a></dt><dd>%s</dd>\n' "${1##*/}" "${1##*/}" "$(sed -n 's/^\.Nd //p; /^\.Nd /q' "$1")"
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
