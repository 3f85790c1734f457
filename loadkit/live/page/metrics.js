// The page of metrics as data. A family is a list of {labels, value}.
const Metrics = (() => {
  const LINE = /^(loadkit_[a-z0-9_]+)(?:\{(.*)\})? (\S+)$/;
  const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;
  const ESCAPES = { "\\\\": "\\", "\\\"": "\"", "\\n": "\n" };

  const labelsOf = (text) => {
    const found = {};
    for (const [, name, value] of (text || "").matchAll(LABEL)) {
      found[name] = value.includes("\\") ? value.replace(/\\./g, (pair) => ESCAPES[pair] ?? pair) : value;
    }
    return found;
  };

  const parse = (text) => {
    const families = new Map();
    for (const line of text.split("\n")) {
      const match = LINE.exec(line);
      if (!match) continue;
      if (!families.has(match[1])) families.set(match[1], []);
      families.get(match[1]).push({ labels: labelsOf(match[2]), value: Number(match[3].replace("+Inf", "Infinity")) });
    }
    return families;
  };

  const rows = (families, name, wanted = {}) =>
    (families.get(name) || []).filter(({ labels }) => Object.entries(wanted).every(([key, value]) => labels[key] === value));
  const sum = (list) => list.reduce((total, { value }) => total + value, 0);
  const max = (list) => list.reduce((most, { value }) => (most === null || value > most ? value : most), null);
  const one = (families, name, wanted) => rows(families, name, wanted)[0]?.value ?? null;
  const total = (families, name, wanted) => sum(rows(families, name, wanted));

  // key of `by` labels -> value, added up.
  const grouped = (list, by) => {
    const found = new Map();
    for (const { labels, value } of list) {
      const key = by.map((name) => labels[name]).join("\t");
      found.set(key, (found.get(key) || 0) + value);
    }
    return found;
  };

  // Histograms added up: key of `by` labels -> [[upper bound in seconds, values up to it], ...], rising.
  const histograms = (families, name, by) => {
    const found = new Map();
    for (const { labels, value } of families.get(name + "_bucket") || []) {
      const key = by.map((label) => labels[label]).join("\t");
      if (!found.has(key)) found.set(key, new Map());
      const bound = Number(labels.le.replace("+Inf", "Infinity"));
      const bounds = found.get(key);
      bounds.set(bound, (bounds.get(bound) || 0) + value);
    }
    for (const [key, bounds] of found) found.set(key, [...bounds].sort((a, b) => a[0] - b[0]));
    return found;
  };

  // As histogram_quantile: linear within a bucket, the last finite bound above it; null where nothing was counted.
  const quantile = (q, buckets) => {
    const count = buckets.length ? buckets[buckets.length - 1][1] : 0;
    if (!count) return null;
    const rank = q * count;
    let [below, counted] = [0, 0];
    for (const [bound, upTo] of buckets) {
      if (upTo >= rank && upTo > counted) {
        return bound === Infinity ? below : below + (bound - below) * ((rank - counted) / (upTo - counted));
      }
      [below, counted] = [bound, upTo];
    }
    return below;
  };

  return { parse, rows, sum, max, one, total, grouped, histograms, quantile };
})();
