"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  // A colour in a specification is "$name": the value of the variable --name on this screen. Data stay as they are.
  const themed = (node, key) => {
    if (key === "values") return node;
    if (typeof node === "string") return node.startsWith("$") ? colour(node.slice(1)) : node;
    if (Array.isArray(node)) return node.map((item) => themed(item));
    if (node === null || typeof node !== "object") return node;
    return Object.fromEntries(Object.entries(node).map(([name, item]) => [name, themed(item, name)]));
  };

  const config = () => ({
    background: "transparent",
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: {
      labelColor: colour("muted"), titleColor: colour("muted"), gridColor: colour("line"), domainColor: colour("line"),
      tickColor: colour("line"), labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500, titlePadding: 8,
    },
    legend: { labelColor: colour("ink"), titleColor: colour("muted"), labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 },
    text: { color: colour("ink"), fontSize: 12 },
  });

  const draw = async (id) => {
    const place = document.getElementById("chart-" + id);
    const result = await vegaEmbed(place, themed(specs[id]), {
      mode: "vega-lite", renderer: "svg", ast: true, config: config(),
      tooltip: { theme: dark.matches ? "dark" : "light" },
      actions: { export: true, source: false, compiled: false, editor: false },
    });
    drawn.get(id)?.finalize();
    drawn.set(id, result);
  };

  const drawAll = async () => {
    await Promise.all(Object.keys(specs).map(draw));
    document.documentElement.dataset.charts = dark.matches ? "dark" : "light";
  };

  // A text that begins like a formula, and is no number, must not become one there.
  const NUMBER = /^[+-]?(\d[\d.,]*(e[+-]?\d+)?( ?%)?)?$/;
  const inert = (text) => (/^[=+\-@]/.test(text) && !NUMBER.test(text) ? `'${text}` : text);

  // A spreadsheet takes tabs and lines; where the clipboard is closed to the page the table is selected instead.
  const copy = async (button) => {
    const table = document.getElementById(button.dataset.table);
    const rows = [...table.rows].map((row) => [...row.cells].map((cell) => inert(cell.textContent.trim())).join("\t"));
    try {
      await navigator.clipboard.writeText(rows.join("\n"));
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(table);
      button.textContent = "Selected: copy now";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-table]");
    if (button) copy(button);
  });
  dark.addEventListener("change", drawAll);
  drawAll();
})();
