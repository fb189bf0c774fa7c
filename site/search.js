// Searches tutorials and manual: `entries`, which build.sh makes, has each section and each item of a list as [page, anchor, title, text].
// `words` has, for a message of dgl-tools-trouble(7), the words by which dgl-why recognizes it.
const field = document.querySelector("input[type=search]");
const found = document.querySelector("#found");

/** The words of a text, without its punctuation; a flag or name with hyphens is one word. */
const split = (text) => text.toLowerCase().match(/[a-z0-9]+(?:[-_.][a-z0-9]+)*/g) ?? [];

const joined = (text) => split(text).join(" ");
const known = new Map(Object.entries(words).map(([messages, recognized]) => [joined(messages), recognized]));

const prepared = entries.map((entry) => {
  const [file, , title, text] = entry;
  const page = file.replace(/\.\d$/, "");
  const recognized = (page === "dgl-tools-trouble" && known.get(joined(title))) || "";
  const all = new Set(split(`${page} ${title} ${text} ${recognized}`));
  return { entry, names: split(`${page} ${title}`), all, recognized };
});
// A word that stands in many entries says little about one of them.
const counts = new Map();
for (const { all } of prepared) for (const word of all) counts.set(word, (counts.get(word) ?? 0) + 1);
const weight = (word) => Math.log(prepared.length / counts.get(word)) + 0.1;

/** Whether a message has all parts of one of the alternatives by which dgl-why recognizes it: half, if dgl-why asks for more. */
function recognition(recognized, message) {
  const [alternatives, condition] = recognized.split(" & ");
  const each = alternatives.split(" | ").filter(Boolean);
  const isOne = each.some((parts) => parts.split("*").every((part) => message.includes(part)));
  return isOne ? (condition ? 0.5 : 1) : 0;
}

/** How well an entry fits: the weight of the words that it has, more for those of its title. */
function fit({ entry: [, , title], names, all, recognized }, query, wanted) {
  const name = title.toLowerCase().trim().replace(/^-+/, "");
  const begins = name.split(/[ ,]/)[0];
  let sum = 0;
  for (const word of wanted) {
    if (all.has(word)) sum += weight(word);
    if (names.includes(word)) sum += weight(word);
  }
  if (begins && begins === query.replace(/^-+/, "")) sum += 100;
  else if (name.startsWith(query.replace(/^-+/, ""))) sum += 50;
  sum += 40 * recognition(recognized, query);
  // of two with the same words the shorter title
  return sum - names.length / 1000;
}

/** The part of a text in which the rarest of the words stands. */
function excerpt(text, wanted) {
  const rarest = [...wanted].sort((one, other) => weight(other) - weight(one));
  const place = rarest.map((word) => text.toLowerCase().indexOf(word)).find((place) => place >= 0) ?? 0;
  const start = Math.max(0, place - 60);
  const from = start ? text.indexOf(" ", start) + 1 : 0;
  const rest = text.slice(from);
  const shown = rest.length > 200 ? `${rest.slice(0, 200).replace(/\S*$/, "")}…` : rest;
  return (from ? "… " : "") + shown;
}

function item([page, anchor, title, text], wanted) {
  const link = Object.assign(document.createElement("a"), { href: `${page}.html#${anchor}`, textContent: title });
  const item = document.createElement("li");
  item.append(link, ` in ${page.replace(/\.(\d)$/, "($1)")}`, document.createElement("br"), excerpt(text, wanted));
  return item;
}

function search() {
  const query = field.value.toLowerCase().trim();
  const given = new Set(split(query));
  // in a message the figures, addresses and names are others, and no entry has them
  const wanted = [...given].filter((word) => counts.has(word) && (given.size <= 3 || !/^[\d.]+$/.test(word)));
  const fits = prepared.map((one) => [fit(one, query, wanted), one.entry]).filter(([fit]) => fit > 0);
  fits.sort(([one], [other]) => other - one);
  const [highest] = fits[0] ?? [0];
  const close = wanted.length ? fits.filter(([fit]) => fit > highest / 4) : [];
  const best = close.slice(0, 30);
  const list = document.createElement("ol");
  list.append(...best.map(([, entry]) => item(entry, wanted)));
  const count = `${close.length} found` + (close.length > best.length ? `, the best ${best.length} here` : "");
  const status = Object.assign(document.createElement("p"), { role: "status", textContent: count });
  found.replaceChildren(...(query ? [status, list] : []));
}

field.value = new URLSearchParams(location.search).get("q") ?? "";
field.addEventListener("input", search);
field.form.addEventListener("submit", (event) => event.preventDefault());
search();
