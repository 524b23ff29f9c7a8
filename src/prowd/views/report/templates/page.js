// Tables are sorted, the theme is switched, and only what can be scrolled is a stop of the Tab key.
(() => {
  "use strict";
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    const original = [...table.tBodies[0].rows];
    headings.forEach((heading, column) => {
      const numeric = heading.classList.contains("number");
      const key = (row) => {
        const text = row.cells[column].textContent.trim();
        const value = numeric ? Number.parseFloat(text.replaceAll(",", "")) : NaN;
        return Number.isNaN(value) ? text : value;
      };
      const compare = (sign) => (one, other) => {
        const [a, b] = [key(one), key(other)];
        if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1; // what is missing comes last either way
        return sign * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
      };
      heading.querySelector("button").addEventListener("click", () => {
        const next = { ascending: "descending", descending: "none" }[heading.getAttribute("aria-sort")] ?? "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        if (next !== "none") heading.setAttribute("aria-sort", next);
        const rows = next === "none" ? original : [...original].sort(compare(next === "ascending" ? 1 : -1));
        table.tBodies[0].append(...rows);
      });
    });
  }
  // Only what can be scrolled is a stop of the Tab key.
  const stops = new ResizeObserver((seen) => {
    for (const { target } of seen) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  document.querySelectorAll(".scroll, pre").forEach((place) => stops.observe(place));

  // The theme: the system's, until somebody wants the other one
  const button = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
  const name = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
    document.dispatchEvent(new Event("themechange"));
  });
  prefersDark.addEventListener("change", name);
  button.hidden = false;
  name();
})();
