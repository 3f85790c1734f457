// Charts as plain SVG. Colours are classes, so that they follow the scheme of the screen.
const Charts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const EDGE = { top: 10, right: 14, bottom: 38, left: 58 };
  const HEIGHT = 220;

  const make = (name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  const scale = ([low, high], [from, to], log) => {
    const of = log ? Math.log10 : (value) => value;
    const [a, b] = [of(low), of(high)];
    return (value) => (b === a ? (from + to) / 2 : from + ((of(value) - a) / (b - a)) * (to - from));
  };

  const ticks = ([low, high], log, wanted = 5) => {
    if (log) {
      const found = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
        for (const digit of high / low > 300 ? [1] : [1, 2, 5]) found.push(digit * 10 ** power);
      }
      const seen = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
      if (seen.length > 1) return seen;
    }
    const rough = (high - low) / wanted || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((value) => value >= rough);
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(value);
    return found;
  };

  const range = (values, { log, zero, least = 0 }) => {
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (log) return [low / 1.25, high * 1.25];
    if (zero) low = 0;
    high = Math.max(high, low + least);
    return [low, zero ? high + (high - low) * 0.08 || 1 : Math.max(high, low + (least || 1))];
  };

  const frame = (place, label) => {
    const width = Math.max(place.clientWidth, 240);
    const svg = make("svg", { width, height: HEIGHT, role: "img", "aria-label": label });
    place.replaceChildren(svg);
    return { svg, left: EDGE.left, right: width - EDGE.right, top: EDGE.top, bottom: HEIGHT - EDGE.bottom };
  };

  const axes = (box, x, y, xAxis, yAxis) => {
    for (const value of yAxis.ticks) {
      box.svg.append(make("line", { x1: box.left, x2: box.right, y1: y(value), y2: y(value), class: "rule" }));
      box.svg.append(make("text", { x: box.left - 8, y: y(value) + 4, class: "tick end" }, yAxis.show(value)));
    }
    let last = -Infinity;
    for (const value of xAxis.ticks) {
      if (x(value) - last < 44) continue;
      last = x(value);
      box.svg.append(make("text", { x: last, y: box.bottom + 17, class: "tick middle" }, xAxis.show(value)));
    }
    box.svg.append(make("text", { x: (box.left + box.right) / 2, y: HEIGHT - 4, class: "tick middle" }, xAxis.label));
  };

  const legend = (place, items) => {
    const list = document.createElement("div");
    list.className = "legend";
    for (const { name, key, tone } of items.filter((one) => one.key !== null)) {
      const item = document.createElement("span");
      item.className = "key " + tone;
      item.textContent = key ?? name;
      list.append(item);
    }
    place.append(list);
  };

  const empty = (place, text) => {
    const note = document.createElement("p");
    note.className = "note empty";
    note.textContent = text;
    place.replaceChildren(note);
  };

  // series: [{name, tone, points: [[x, y]...], dots, dashed, key}], where key is its name in the legend, null for none;
  // x and y: {log, zero, label, show, ticks, least}.
  const lines = (place, series, { x: xAxis, y: yAxis, limit, label }) => {
    const drawn = series.map((one) => ({
      ...one,
      points: one.points.filter(([a, b]) => a !== null && b !== null && (!yAxis.log || b > 0)),
    })).filter((one) => one.points.length);
    if (!drawn.length) return empty(place, "nothing yet");
    const points = drawn.flatMap((one) => one.points);
    const [xs, ys] = [range(points.map(([a]) => a), xAxis), range(points.map(([, b]) => b), yAxis)];
    const box = frame(place, label);
    const x = scale(xs, [box.left, box.right], xAxis.log);
    const y = scale(ys, [box.bottom, box.top], yAxis.log);
    axes(box, x, y, { ...xAxis, ticks: xAxis.ticks || ticks(xs, xAxis.log) }, { ...yAxis, ticks: ticks(ys, yAxis.log, 4) });
    if (limit !== undefined && limit <= ys[1]) {
      box.svg.append(make("line", { x1: box.left, x2: box.right, y1: y(limit), y2: y(limit), class: "limit" }));
    }
    for (const one of drawn) {
      const path = one.points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
      box.svg.append(make("path", { d: path, class: `line ${one.tone}${one.dashed ? " dashed" : ""}` }));
      for (const [a, b] of one.dots ? one.points : []) {
        const dot = make("circle", { cx: x(a), cy: y(b), r: 3.5, class: "dot " + one.tone });
        dot.append(make("title", {}, `${one.name}: ${yAxis.show(b)} at ${xAxis.show(a)}`));
        box.svg.append(dot);
      }
    }
    legend(place, drawn);
  };

  // columns: [{name, cells: [[lower, upper, share 0..1]...]}]; y is logarithmic.
  const heat = (place, columns, { y: yAxis, label, xLabel }) => {
    const filled = columns.flatMap(({ cells }) => cells.filter(([, , share]) => share > 0));
    if (!filled.length) return empty(place, "nothing yet");
    const ys = [Math.min(...filled.map(([low]) => low)), Math.max(...filled.map(([, high]) => high))];
    const box = frame(place, label);
    const y = scale(ys, [box.bottom, box.top], true);
    const step = (box.right - box.left) / columns.length;
    const x = (i) => box.left + step * (i + 0.5);
    axes(box, x, y, { ticks: columns.map((_, i) => i), show: (i) => columns[i].name, label: xLabel },
      { ...yAxis, ticks: ticks(ys, true) });
    columns.forEach(({ name, cells }, i) => {
      for (const [low, high, share] of cells.filter(([, , part]) => part > 0)) {
        const cell = make("rect", {
          x: x(i) - step / 2 + 1, width: Math.max(step - 2, 1), y: y(high) + 0.5, height: Math.max(y(low) - y(high) - 1, 1),
          class: "cell", "fill-opacity": 0.15 + 0.85 * share,
        });
        cell.append(make("title", {}, `${name}: ${(share * 100).toFixed(0)} % from ${yAxis.show(low)} to ${yAxis.show(high)}`));
        box.svg.append(cell);
      }
    });
  };

  // rows: [{name, value, tone}]; each bar has its number behind it.
  const bars = (place, rows, show) => {
    if (!rows.length) return empty(place, "nothing yet");
    const most = Math.max(...rows.map(({ value }) => value)) || 1;
    const list = document.createElement("div");
    list.className = "bars";
    for (const { name, value, tone } of rows) {
      const [label, track, bar, number] = ["span", "span", "span", "span"].map((tag) => document.createElement(tag));
      [label.textContent, number.textContent] = [name, show(value)];
      [track.className, bar.className, number.className] = ["track", "bar " + tone, "number"];
      bar.style.width = `${Math.max((value / most) * 100, 0.5)}%`;
      track.append(bar);
      list.append(label, track, number);
    }
    place.replaceChildren(list);
  };

  return { lines, heat, bars, empty };
})();
