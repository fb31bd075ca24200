"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const config = {
    background: "transparent", font: "system-ui, sans-serif",
    axis: { labelLimit: innerWidth < 640 ? 110 : 220, labelColor: "currentColor", titleColor: "currentColor", tickColor: "currentColor", domainColor: "currentColor", gridColor: "currentColor", gridOpacity: 0.15, titleFontWeight: 500 },
    legend: { labelColor: "currentColor", titleColor: "currentColor" },
    view: { stroke: null },
    bar: { stroke: "currentColor", strokeWidth: 0.4 },
    rule: { color: "currentColor" },
  };
  const options = { mode: "vega-lite", actions: false, renderer: "svg", config, tooltip: { disableDefaultStyle: true } };
  // A click on a mark that counts groups lists these groups. On a trend that is the nearest point.
  const whereOf = (item) => item && item.datum && item.datum.where;
  const drawn = [], HEIGHT = 220; // of a chart whose bars have no names
  const embed = (place) => window.vegaEmbed(place, data.charts[place.dataset.chart], options).then(({ view }) => {
    drawn.push({ place, view, height: view.height() });
    view.addEventListener("click", (event, item) => { const where = whereOf(item); if (where) list(where); });
    view.addEventListener("mouseover", (event, item) => { place.style.cursor = whereOf(item) ? "pointer" : ""; });
  });
  const draws = (places) => Promise.all([...places].map(embed)).then((some) => {
    document.documentElement.dataset.drawn = Number(document.documentElement.dataset.drawn || 0) + some.length;
  });
  draws(document.querySelectorAll("main > section [data-chart]"));
  // A chart is as wide as its place, which has no width before it is opened.
  document.getElementById("details").addEventListener("toggle", ({ target }) => draws(target.querySelectorAll("[data-chart]")), { once: true });

  // Letters of a chart that is only scaled down to paper could not be read: it is drawn again, as wide as half a page.
  const ON_PAPER = [330, 150];
  addEventListener("beforeprint", () => drawn.forEach(({ view, height }) => view.width(ON_PAPER[0]).height(height === HEIGHT ? ON_PAPER[1] : height).run()));
  addEventListener("afterprint", () => drawn.forEach(({ place, view, height }) => view.width(place.clientWidth).height(height).run()));

  // --- light and dark ---
  const root = document.documentElement, theme = document.getElementById("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const named = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; named(); });
  system.addEventListener("change", named);
  named();

  // --- the table of groups ---
  // A column has each of its values, or those that recur once and their places.
  const unpacked = ({ each, of, at }) => each || at.map((place) => of[place]);
  const { columns, solved } = data.groups, values = data.groups.values.map(unpacked);
  const lines = values[0].map((_, i) => values.map((column) => column[i]));
  const keys = unpacked(data.groups.keys).map((key, i) => key ?? lines[i][0]);
  const beginnings = unpacked(data.groups.beginnings), strips = unpacked(data.groups.strips);
  const STEP = 200, PRINTED = 40, SHORT = 240, HEIGHTS = "▁▂▃▄▅▆▇█";
  const RATE = columns.indexOf("solve_rate"), SCORED = columns.indexOf("scored"), SIZE = columns.indexOf("size");
  let sorted = null, down = true, most = STEP, listed = [], current = null;
  const cell = (row, text, kind) => {
    const made = row.insertCell();
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const element = (name, kind, text = "") => {
    const made = document.createElement(name);
    made.className = kind;
    made.textContent = text;
    return made;
  };
  const shown = (value) => value === null || value === undefined ? "" :
    typeof value === "number" ? (Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 12 })) : String(value);

  // A solve rate is k of n where every reward is the worst or the best; what was cut off is a share.
  const facts = (i, at) => {
    const value = lines[i][at], name = columns[at];
    if (at === RATE && solved && value !== null) return `${Math.round(value * lines[i][SCORED])} of ${lines[i][SIZE]}`;
    if (name === "truncated" && value !== null) return value ? `${Math.round(100 * value)}%` : "";
    return name === "number" ? `#${value}` : shown(value);
  };
  const strip = (i) => [...strips[i]].map((height) => HEIGHTS[height] ?? "·").join("");

  // A condition as the command line knows it, as far as it is a chain of comparisons; else words of a key.
  const HEADS = { size: "group size" };
  const head = (name) => HEADS[name] ?? name.replaceAll("_", " ");
  const compare = { "=": (a, b) => a === b, "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "==": (a, b) => a === b, "!=": (a, b) => a !== b };
  const place = (term) => columns.includes(term) ? columns.indexOf(term) : columns.map(head).indexOf(term);
  const chain = (text, quoted) => {
    const terms = text.split(/(<=|>=|==|!=|<|>|=)/).map((part) => part.trim());
    if (terms.length < 3 || terms.length % 2 === 0) return null;
    const values = terms.filter((_, i) => i % 2 === 0).map((term) =>
      place(term) >= 0 ? (line) => line[place(term)] : /^"\d+"$/.test(term) ? () => quoted[term.slice(1, -1)] : term !== "" && Number.isFinite(Number(term)) ? () => Number(term) : null);
    if (values.includes(null)) return null;
    const signs = terms.filter((_, i) => i % 2 === 1);
    return (line) => signs.every((sign, i) => {
      const left = values[i](line), right = values[i + 1](line);
      return left !== null && typeof left === typeof right && compare[sign](left, right);
    });
  };
  const condition = (text) => {
    const quoted = [];
    const numbered = text.replace(/'([^']*)'|"([^"]*)"/g, (_, one, other) => `"${quoted.push(one ?? other) - 1}"`);
    const parts = numbered.split(/\band\b/).map((part) => chain(part, quoted));
    return parts.every((part) => part) ? (line) => parts.every((part) => part(line)) : null;
  };
  // Words are looked for in all that the table and the open group show. What compares, and is no condition and nowhere in them, is a mistake.
  const texts = (passages) => passages.flatMap(([speaker, text]) => [speaker, text]);
  const said = (i) => {
    const group = data.groups.rows[i], known = [keys[i], lines[i][0], beginnings[i], ...lines[i].filter((value) => typeof value === "string")];
    if (group) known.push(group.truth ?? "", ...texts(group.prompt), ...(group.said ?? []).flatMap(texts), ...group.lines.flat().filter((value) => typeof value === "string"));
    return known.join("\n").toLowerCase();
  };
  let searched = null; // made when somebody searches
  let wrong = "";
  const matching = () => {
    const text = document.getElementById("search").value.trim();
    const places = lines.map((_, i) => i);
    wrong = "";
    if (!text) return places;
    const holds = condition(text);
    if (holds) return places.filter((i) => holds(lines[i]));
    const words = text.toLowerCase().split(/\s+/);
    searched ??= places.map(said);
    const found = places.filter((i) => words.every((word) => searched[i].includes(word)));
    if (!found.length && /[<>=]/.test(text)) {
      const known = ["and", ...columns, ...columns.flatMap((name) => head(name).split(" "))];
      const unknown = (text.match(/[A-Za-z_][\w.]*/g) || []).find((word) => !known.includes(word));
      const [, bare] = text.match(/(?<![<>])=\s*([A-Za-z_][^'"<>=]*?)\s*(?:\band\b.*)?$/) || [];
      const heads = columns.slice(1).map((name) => name.replaceAll("_", " ")).join(", ");
      wrong = bare && place(bare) < 0 ? `texts need quotes: ${text.replace(bare, `'${bare}'`)}` :
        `${unknown ? `no column is called ${unknown}` : "this is not a condition"}; the columns are ${heads}`;
    }
    return found;
  };
  const list = (text) => {
    document.getElementById("vg-tooltip-element")?.classList.remove("visible");
    document.getElementById("search").value = text;
    most = STEP;
    draw();
    document.getElementById("groups").scrollIntoView({ behavior: "smooth" });
  };
  const ordered = (places) => {
    if (sorted === null) return places;
    const value = (i) => lines[i][sorted];
    const size = (a, b) => typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return places.sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === null || y === null) return (x === null) - (y === null);
      return (down ? -1 : 1) * size(x, y) || a - b;
    });
  };
  const visible = data.groups.shown.map((name) => columns.indexOf(name));
  // The strip of rewards stands beside what it adds up to.
  const beside = visible.includes(RATE) ? RATE : columns.indexOf("mean");
  const kind = (at) => lines.some((line) => typeof line[at] === "string") ? "text" : "";
  const kinds = columns.map((_, at) => at ? kind(at) : "key");
  const heads = () => {
    const top = document.querySelector("#table thead");
    const row = document.createElement("tr");
    for (const at of visible) {
      const name = columns[at], th = document.createElement("th");
      th.scope = "col";
      th.className = kinds[at];
      th.dataset.head = at ? head(name) : "group";
      th.ariaSort = sorted === at ? (down ? "descending" : "ascending") : "none";
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.column = name;
      button.textContent = th.dataset.head + (sorted === at ? (down ? " ▾" : " ▴") : "");
      button.addEventListener("click", () => {
        down = sorted === at ? !down : at !== 0;
        sorted = at;
        draw();
        document.querySelector(`#table [data-column="${CSS.escape(name)}"]`).focus();
      });
      th.append(button);
      row.append(th);
      if (at === beside) row.append(Object.assign(document.createElement("th"), { scope: "col", className: "text", textContent: "rewards" }));
    }
    top.replaceChildren(row);
  };
  const draw = () => {
    heads();
    const places = ordered(matching());
    listed = places;
    const body = document.createElement("tbody");
    for (const i of places.slice(0, most)) {
      const row = body.insertRow();
      const key = document.createElement("button");
      key.type = "button";
      key.textContent = lines[i][0];
      key.addEventListener("click", () => open(i));
      if (data.groups.rows[i]) key.className = "whole";
      const first = cell(row, "", "key");
      first.append(key);
      if (beginnings[i]) first.append(element("span", "prompt", beginnings[i]));
      for (const at of visible.slice(1)) {
        const made = cell(row, facts(i, at), kinds[at]);
        if (made.textContent) made.dataset.name = at === 1 ? "" : head(columns[at]);
        if (at === beside) cell(row, strip(i), "strip").ariaLabel = `rewards ${facts(i, at)}`;
      }
    }
    document.querySelector("#table tbody").replaceWith(body);
    const page = data.total > lines.length ? ` of the ${shown(lines.length)} that this page holds (${shown(data.total)} in all)` : ` of ${shown(lines.length)}`;
    const counted = `${shown(places.length)}${page} ${lines.length === 1 ? "group" : "groups"}`.replace(/ in all\) groups$/, " groups in all)");
    const text = document.getElementById("search").value.trim();
    const printed = Math.min(most, PRINTED), first = places.length > printed ? `; the first ${printed}` : "";
    document.getElementById("matches").textContent = wrong || counted;
    document.getElementById("printed").textContent = counted + (text && `: ${text}`) + first;
    document.getElementById("more").hidden = places.length <= most;
  };
  document.getElementById("search").addEventListener("input", () => { most = STEP; draw(); });
  document.getElementById("more").addEventListener("click", () => { most += STEP; draw(); });

  // --- one group ---
  // A short key is its own address, a long or a doubled one has the number of its group.
  const address = (i) => keys[i].length <= 80 && keys.indexOf(keys[i]) === keys.lastIndexOf(keys[i]) ? keys[i] : `group-${lines[i][1]}`;
  // A long turn shows its beginning and its end until it is opened.
  const turn = (speaker, text) => {
    const code = /, tool call|^tool\b/.test(speaker) ? " code" : "";
    const made = element("details", `turn ${speaker.split(/[ ,]/)[0].toLowerCase()}${code}`), head = element("summary", ""), whole = element("div", "");
    // Code between marks of Markdown is monospaced; the marks stay, since the model wrote them.
    text.split(/(^```[\s\S]*?(?:^```[ \t]*$|$(?![\s\S])))/m).forEach((part, at) => part && whole.append(at % 2 ? element("code", "", part) : part));
    head.append(element("b", "", speaker));
    if (text.length > SHORT) head.append(element("span", "brief", ` ${text.slice(0, SHORT / 2)} … ${text.slice(-SHORT / 2)}`));
    made.open = text.length <= SHORT;
    made.append(head, whole);
    return made;
  };
  const open = (i) => {
    current = i;
    const group = data.groups.rows[i] ?? { prompt: beginnings[i] ? [["prompt", beginnings[i]]] : [], truth: null, more: false, lines: [], said: null };
    const whole = keys[i], here = i in data.groups.rows;
    document.getElementById("group-key").textContent = `#${lines[i][1]} ${whole}`;
    document.getElementById("group-prompt").replaceChildren(...group.prompt.map(([speaker, text]) => turn(speaker, text)));
    document.getElementById("group-truth").textContent = group.truth === null ? "" : `Ground truth: ${group.truth}`;
    document.getElementById("group-facts").textContent = visible.filter((at) => at > 1).map((at) => `${head(columns[at])} ${facts(i, at) || "-"}`).join(" · ") + (group.more ? ` · the first ${group.lines.length} rows` : "");
    document.getElementById("group-strip").textContent = strip(i);
    const nothing = here ? [] : [element("p", "", `This page has no rollouts of this group: grpo-adv browse FILES --show '#${lines[i][1]}'`)];
    document.getElementById("group-rows").replaceChildren(...nothing, ...group.lines.map((line, k) => {
      const rollout = element("article", ""), numbers = element("dl", "numbers"), turns = element("div", "turns");
      line.forEach((value, at) => {
        if (value === null) return;
        const pair = element("div", "");
        pair.append(element("dt", "", data.groups.heads[at]), element("dd", "", shown(value)));
        numbers.append(pair);
      });
      if (!group.said) turns.append(element("p", "", "This page has no room for its texts."));
      else turns.append(...group.said[k].map(([speaker, text]) => turn(speaker, text)));
      rollout.append(numbers, turns);
      return rollout;
    }));
    const dialog = document.getElementById("group");
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    const at = listed.indexOf(i);
    document.getElementById("previous").disabled = at <= 0;
    document.getElementById("next").disabled = at < 0 || at === listed.length - 1;
    history.replaceState(null, "", `#${encodeURIComponent(address(i))}`);
    document.getElementById("link").href = location.hash;
  };
  const step = (by) => { const i = listed[listed.indexOf(current) + by]; if (i !== undefined) open(i); };
  document.getElementById("previous").addEventListener("click", () => step(-1));
  document.getElementById("next").addEventListener("click", () => step(1));
  document.getElementById("group").addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  document.getElementById("group").addEventListener("close", () => history.replaceState(null, "", location.pathname));
  const follow = () => {
    let wanted;
    try { wanted = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    const i = wanted ? lines.findIndex((_, at) => keys[at] === wanted || wanted === `group-${lines[at][1]}`) : -1;
    if (i >= 0) open(i);
  };
  addEventListener("hashchange", follow);
  draw();
  follow();
})();
