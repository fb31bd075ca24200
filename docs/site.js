/* A filter over the tables and sections of a long page of reference: words of a name, an option, a formula or a framework. */
const PAGES = {
  presets: "trl rloo, 1e-08 ...",
  options: "group, epsilon, force ...",
  methods: "rloo, leave-one-out, median ...",
  schemas: "trl, parquet, trace ...",
  targets: "sft, axolotl ...",
  gates: "zero_variance, reward ...",
};

document.addEventListener("DOMContentLoaded", () => {
  // From the disk a browser loads no index: a box that finds nothing is worse than none.
  if (location.protocol === "file:") document.querySelectorAll(".md-search, [for=__search]").forEach((part) => { part.hidden = true; part.style.display = "none"; });
  const article = document.querySelector("article");
  const [, name] = location.pathname.match(/([a-z-]+)(?:\.html)?\/?$/) || [];
  if (!article || !(name in PAGES)) return;
  const sections = [...article.querySelectorAll("h2")].map((head) => {
    const parts = [head];
    for (let next = head.nextElementSibling; next && next.tagName !== "H2"; next = next.nextElementSibling) parts.push(next);
    const rows = name === "methods" ? [] : parts.flatMap((part) => [...part.querySelectorAll("tbody tr")]); // a method is shown whole
    return { head, parts, rows, text: parts.map((part) => part.textContent).join(" ").toLowerCase() };
  });
  // The tables before the first section have rows, too.
  const before = [...article.children].slice(0, [...article.children].indexOf(sections[0].head));
  const others = before.flatMap((part) => [...part.querySelectorAll("tbody tr")]);
  const field = document.createElement("input");
  field.type = "search";
  field.className = "filter";
  field.placeholder = `Filter: ${PAGES[name]}`;
  field.setAttribute("aria-label", "Filter this page");
  const first = before.find((part) => part.querySelector("table")) || sections[0].head;
  article.insertBefore(field, first);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (text) => words.every((word) => text.includes(word));
    for (const row of others) row.hidden = !has(row.textContent.toLowerCase());
    for (const { head, parts, rows, text } of sections) {
      for (const row of rows) row.hidden = !has(`${head.textContent} ${row.textContent}`.toLowerCase());
      const empty = words.length > 0 && (rows.length ? rows.every((row) => row.hidden) && !has(head.textContent.toLowerCase()) : !has(text));
      for (const part of parts) part.hidden = empty;
    }
  });
});
