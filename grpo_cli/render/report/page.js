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
  const embed = (place) => window.vegaEmbed(place, data.charts[place.dataset.chart], options).then(({ view }) => {
    view.addEventListener("click", (event, item) => { const where = whereOf(item); if (where) list(where); });
    view.addEventListener("mouseover", (event, item) => { place.style.cursor = whereOf(item) ? "pointer" : ""; });
  });
  const draws = (places) => Promise.all([...places].map(embed)).then((drawn) => {
    document.documentElement.dataset.drawn = Number(document.documentElement.dataset.drawn || 0) + drawn.length;
  });
  draws(document.querySelectorAll("main > section [data-chart]"));
  // A chart is as wide as its place, which has no width before it is opened.
  document.getElementById("details").addEventListener("toggle", ({ target }) => draws(target.querySelectorAll("[data-chart]")), { once: true });

  // --- light and dark ---
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // --- the table of groups ---
  const { columns, lines } = data.groups;
  const STEP = 200, SHORT = 240;
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
    typeof value === "number" ? (Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4)))) : String(value);

  // A condition as the command line knows it, as far as it is a chain of comparisons; else words of a key.
  const head = (name) => name.replaceAll("_", " ");
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
  // Words are looked for in keys and prompts. What compares, and is no condition and nowhere in them, is a mistake.
  const said = data.groups.rows.map((group, i) => [data.groups.keys[i], ...group.prompt.map(([, text]) => text)].join("\n").toLowerCase());
  let wrong = "";
  const matching = () => {
    const text = document.getElementById("search").value.trim();
    const places = lines.map((_, i) => i);
    wrong = "";
    if (!text) return places;
    const holds = condition(text);
    if (holds) return places.filter((i) => holds(lines[i]));
    const words = text.toLowerCase().split(/\s+/);
    const found = places.filter((i) => words.every((word) => said[i].includes(word)));
    if (!found.length && /[<>=]/.test(text)) {
      const known = ["and", ...columns, ...columns.flatMap((name) => head(name).split(" "))];
      const unknown = (text.match(/[A-Za-z_][\w.]*/g) || []).find((word) => !known.includes(word));
      const [, bare] = text.match(/(?<![<>])=\s*([A-Za-z_][^'"<>=]*?)\s*(?:\band\b.*)?$/) || [];
      const heads = columns.slice(1).map(head).join(", ");
      wrong = bare && place(bare) < 0 ? `texts need quotes: ${text.replace(bare, `'${bare}'`)}` :
        `${unknown ? `no column is called ${unknown}` : "this is not a condition"}; the columns are ${heads}`;
    }
    return found;
  };
  const list = (text) => {
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
  const heads = () => {
    const top = document.querySelector("#table thead");
    const row = document.createElement("tr");
    columns.forEach((name, i) => {
      const th = document.createElement("th");
      th.scope = "col";
      if (i === 0) th.className = "key";
      th.ariaSort = sorted === i ? (down ? "descending" : "ascending") : "none";
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.column = name;
      button.textContent = head(name) + (sorted === i ? (down ? " ▾" : " ▴") : "");
      button.addEventListener("click", () => {
        down = sorted === i ? !down : i !== 0;
        sorted = i;
        draw();
        document.querySelector(`#table [data-column="${name}"]`).focus();
      });
      th.append(button);
      row.append(th);
    });
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
      cell(row, "", "key").append(key);
      lines[i].slice(1).forEach((value, k) => { cell(row, k ? shown(value) : `#${value}`).dataset.name = head(columns[k + 1]); });
    }
    document.querySelector("#table tbody").replaceWith(body);
    const counted = `${shown(places.length)} of ${shown(lines.length)} groups`, text = document.getElementById("search").value.trim();
    const sample = data.total > lines.length ? ` (a sample of ${shown(data.total)})` : "", first = places.length > most ? `; the first ${most}` : "";
    document.getElementById("matches").textContent = wrong || counted;
    document.getElementById("printed").textContent = counted + sample + (text && `: ${text}`) + first;
    document.getElementById("more").hidden = places.length <= most;
  };
  document.getElementById("search").addEventListener("input", () => { most = STEP; draw(); });
  document.getElementById("more").addEventListener("click", () => { most += STEP; draw(); });

  // --- one group ---
  // A short key is its own address, a long or a doubled one has the number of its group.
  const addresses = data.groups.keys.map((key) => key.length <= 80 ? key : "");
  const address = (i) => addresses[i] && addresses.indexOf(addresses[i]) === addresses.lastIndexOf(addresses[i]) ? addresses[i] : `group-${lines[i][1]}`;
  // A long turn shows its beginning and its end until it is opened.
  const turn = (speaker, text) => {
    const made = element("details", `turn ${speaker.split(/[ ,]/)[0].toLowerCase()}`), head = element("summary", ""), whole = element("div", "", text);
    head.append(element("b", "", speaker));
    if (text.length > SHORT) head.append(element("span", "brief", ` ${text.slice(0, SHORT / 2)} … ${text.slice(-SHORT / 2)}`));
    made.open = text.length <= SHORT;
    made.append(head, whole);
    return made;
  };
  const open = (i) => {
    current = i;
    const group = data.groups.rows[i], whole = data.groups.keys[i];
    document.getElementById("group-key").textContent = `#${lines[i][1]} ${whole}`;
    document.getElementById("group-prompt").replaceChildren(...group.prompt.map(([speaker, text]) => turn(speaker, text)));
    document.getElementById("group-truth").textContent = group.truth === null ? "" : `Ground truth: ${group.truth}`;
    document.getElementById("group-facts").textContent = columns.slice(2).map((name, k) => `${head(name)} ${shown(lines[i][k + 2]) || "-"}`).join(" · ") + (group.more ? ` · the first ${group.lines.length} rows` : "");
    document.getElementById("group-rows").replaceChildren(...group.lines.map((line, k) => {
      const rollout = element("article", ""), numbers = element("dl", "numbers"), turns = element("div", "turns");
      line.forEach((value, at) => {
        if (value === null) return;
        const pair = element("div", "");
        pair.append(element("dt", "", data.groups.heads[at]), element("dd", "", shown(value)));
        numbers.append(pair);
      });
      if (!group.said) turns.append(element("p", "", "This page has no texts of this group."));
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
    const i = wanted ? lines.findIndex((_, at) => data.groups.keys[at] === wanted || wanted === `group-${lines[at][1]}`) : -1;
    if (i >= 0) open(i);
  };
  addEventListener("hashchange", follow);
  draw();
  follow();
})();
