/* A filter over the tables of the page of presets: words of a name, a formula or a framework. */
document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article");
  if (!/presets(\.html)?$/.test(location.pathname) || !article) return;
  const sections = [...article.querySelectorAll("h2")].map((head) => {
    const parts = [head];
    for (let next = head.nextElementSibling; next && next.tagName !== "H2"; next = next.nextElementSibling) parts.push(next);
    return { head, parts, rows: parts.flatMap((part) => [...part.querySelectorAll("tbody tr")]) };
  });
  const field = document.createElement("input");
  field.type = "search";
  field.className = "filter";
  field.placeholder = "Filter: trl rloo, 1e-08 ...";
  field.setAttribute("aria-label", "Filter the presets");
  article.insertBefore(field, sections[0].head);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { head, parts, rows } of sections) {
      for (const row of rows) {
        const text = `${head.textContent} ${row.textContent}`.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
      const empty = words.length > 0 && rows.every((row) => row.hidden);
      for (const part of parts) part.hidden = empty;
    }
  });
});
