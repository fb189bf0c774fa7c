"use strict";
// Draws flame graphs of the profiles on this page: of all processes of a kind or of one, two of them side by side. A node is
// [frame, looks, looks at which the thread computed, nodes of what it called]; the outermost frame is on top.
(() => {
  const data = JSON.parse(document.getElementById("profiles").textContent);
  const box = document.getElementById("flames");
  const search = box.querySelector("input");
  const ROW = 20, LEAST = 0.002; // pixels; what is narrower than this part of a graph is left out

  const node = (frame, parent) => ({ frame, parent, looks: 0, active: 0, called: new Map() });
  const add = (into, [frame, looks, active, called]) => {
    if (!into.called.has(frame)) into.called.set(frame, node(frame, into));
    const own = into.called.get(frame);
    own.looks += looks;
    own.active += active;
    called.forEach((one) => add(own, one));
  };
  const treeOf = ({ name, processes }) => {
    const root = node(name, null);
    for (const at of processes) {
      data.processes[at].forEach((one) => add(root, one));
      root.looks += data.looks[at];
    }
    return root;
  };
  const words = (one) => (typeof one.frame === "string" ? one.frame : data.frames[one.frame]);
  const kind = (text) =>
    !/\(.*:\d+\)$/.test(text) ? "thread" : text.includes("/") ? "package" : "own";
  const percent = (part, whole) => ((100 * part) / Math.max(whole, 1)).toFixed(1) + " %";
  const found = (one) => search.value !== "" && words(one).toLowerCase().includes(search.value.toLowerCase());
  // Looks at which anything that was found is on the stack.
  const looksFound = (one) => (found(one) ? one.looks : [...one.called.values()].reduce((sum, child) => sum + looksFound(child), 0));

  class Graph {
    constructor(element) {
      this.select = element.querySelector("select");
      this.area = element.querySelector(".flame");
      this.note = element.querySelector("p");
      this.select.addEventListener("change", () => this.choose());
      this.area.addEventListener("click", (event) => event.target.node && this.zoom(event.target.node));
      this.area.addEventListener("keydown", (event) => this.key(event));
      this.choose();
    }

    choose() {
      const subject = data.subjects[this.select.value];
      this.root = subject && treeOf(subject);
      this.zoom(this.root);
    }

    zoom(to) {
      this.at = to;
      this.buttons = new Map();
      this.area.replaceChildren();
      this.note.textContent = "";
      if (!this.root) return;
      const above = [];
      for (let one = to; one; one = one.parent) above.unshift(one);
      above.forEach((one, depth) => this.draw(one, 0, 1, depth));
      this.drawCalled(to, 0, 1, above.length);
      const rows = Math.max(...[...this.buttons.values()].map((button) => button.depth)) + 1;
      this.area.style.height = rows * ROW + "px";
      const looks = looksFound(to);
      if (search.value !== "") this.note.textContent = `${percent(looks, to.looks)} of its time is in what was searched for.`;
      this.buttons.get(to).tabIndex = 0;
    }

    drawCalled(of, left, width, depth) {
      const whole = [...of.called.values()].reduce((sum, one) => sum + one.looks, 0);
      const base = Math.max(of.looks, whole, 1);
      for (const one of [...of.called.values()].sort((a, b) => b.looks - a.looks)) {
        const share = (width * one.looks) / base;
        if (share >= LEAST) {
          this.draw(one, left, share, depth);
          this.drawCalled(one, left, share, depth + 1);
        }
        left += share;
      }
    }

    draw(one, left, width, depth) {
      const button = document.createElement("button");
      const text = words(one);
      button.textContent = text;
      button.title = `${text}: ${percent(one.looks, this.root.looks)}, ${one.looks} looks` +
        (one.parent ? `, computing at ${percent(one.active, one.looks)} of them` : "");
      button.className = kind(text) + (found(one) ? " found" : "");
      button.style.cssText = `left:${100 * left}%;width:${100 * width}%;top:${depth * ROW}px`;
      button.tabIndex = -1;
      [button.node, button.depth] = [one, depth];
      this.buttons.set(one, button);
      this.area.append(button);
    }

    key(event) {
      const one = event.target.node;
      if (!one) return;
      const beside = one.parent ? [...one.parent.called.values()].sort((a, b) => b.looks - a.looks) : [one];
      const most = [...one.called.values()].sort((a, b) => b.looks - a.looks)[0];
      const at = beside.indexOf(one);
      const to = { ArrowUp: one.parent, ArrowDown: most, ArrowLeft: beside[at - 1], ArrowRight: beside[at + 1] }[event.key];
      if (event.key === "Escape") this.zoom(this.root);
      const focus = event.key === "Escape" ? this.buttons.get(this.root) : to && this.buttons.get(to);
      if (event.key.startsWith("Arrow") || event.key === "Escape") event.preventDefault();
      if (focus) focus.focus();
    }
  }

  const graphs = [...box.querySelectorAll(".graph")].map((element) => new Graph(element));
  search.addEventListener("input", () => graphs.forEach((graph) => graph.zoom(graph.at)));
  box.hidden = false;
})();
