// Searches the manual: `entries`, which build.sh makes, has each section and each item of a list as [page, anchor, title, text].
const field = document.querySelector("input[type=search]");
const found = document.querySelector("#found");

/** How well an entry fits: by its title, or only by its text; 0 if a word is missing. */
function fit([page, , title, text], words) {
  const name = title.toLowerCase().replace(/^-+/, "");
  const query = words.join(" ").replace(/^-+/, "");
  const all = `${page} ${title} ${text}`.toLowerCase();
  if (!words.every((word) => all.includes(word))) return 0;
  if (name.split(/[ ,]/)[0] === query) return 4;
  if (name.startsWith(query)) return 3;
  return words.every((word) => `${page} ${name}`.includes(word.replace(/^-+/, ""))) ? 2 : 1;
}

/** The part of a text in which the first of the words stands. */
function excerpt(text, words) {
  const places = words.map((word) => text.toLowerCase().indexOf(word)).filter((place) => place >= 0);
  const start = Math.max(0, Math.min(...places, text.length) - 60);
  const from = start && places.length ? text.indexOf(" ", start) + 1 : 0;
  const rest = text.slice(from);
  const shown = rest.length > 200 ? `${rest.slice(0, 200).replace(/\S*$/, "")}…` : rest;
  return (from ? "… " : "") + shown;
}

function item([page, anchor, title, text], words) {
  const link = Object.assign(document.createElement("a"), { href: `${page}.html#${anchor}`, textContent: title });
  const item = document.createElement("li");
  item.append(link, ` in ${page.replace(/\.(\d)$/, "($1)")}`, document.createElement("br"), excerpt(text, words));
  return item;
}

function search() {
  const given = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  // in a message, which is long, the figures and addresses are others
  const words = given.length > 3 ? given.filter((word) => !/\d/.test(word)) : given;
  const fits = words.length ? entries.map((entry) => [fit(entry, words), entry]).filter(([fit]) => fit) : [];
  fits.sort(([one], [other]) => other - one);
  const best = fits.slice(0, 30);
  const list = document.createElement("ol");
  list.append(...best.map(([, entry]) => item(entry, words)));
  const count = `${fits.length} found` + (fits.length > best.length ? `, the best ${best.length} here` : "");
  const status = Object.assign(document.createElement("p"), { role: "status", textContent: count });
  found.replaceChildren(...(words.length ? [status, list] : []));
}

field.value = new URLSearchParams(location.search).get("q") ?? "";
field.addEventListener("input", search);
field.form.addEventListener("submit", (event) => event.preventDefault());
search();
