// Asks for the metrics again and again, and shows them. What the metrics say is text here, never markup.
(() => {
  const { rows, sum, max, one, total, grouped, histograms, quantile } = Metrics;
  const EVERY_MS = 2000;
  const RATE_S = 10;
  const KEPT = 3600;
  const TONES = ["c0", "c1", "c2", "c3", "c4", "c5", "c6"];
  const tone = (i) => TONES[i % TONES.length];
  const $ = (id) => document.getElementById(id);

  let run = null;
  let history = [];
  let latest = null;
  let ended = false;

  // -- words -----------------------------------------------------------------------------------------------------

  const digits = (value) => String(+value.toPrecision(3));
  const seconds = (value) => {
    if (value === null) return "–";
    if (value === 0) return "0";
    const [factor, unit] = value < 0.001 ? [1e6, "µs"] : value < 1 ? [1e3, "ms"] : value < 120 ? [1, "s"] : [1 / 60, "min"];
    return `${digits(value * factor)} ${unit}`;
  };
  const count = (value) => (value === null ? "–" : value >= 1e5 ? `${(value / 1e3).toFixed(0)}K` : String(+value.toFixed(1)));
  const percent = (value) => (value === null ? "–" : `${+(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`);
  const clock = (value) => `${Math.floor(value / 60)}:${String(Math.floor(value % 60)).padStart(2, "0")}`;
  const number = (text) => (text.endsWith("rps") ? Number(text.slice(0, -3)) : Number(text));
  const rising = (keys) => [...keys].sort((a, b) => number(a) - number(b) || a.localeCompare(b));
  const streams = (load) => (load.endsWith("rps") ? load : load === "1" ? "1 stream" : `${load} streams`);

  // -- what the page of metrics says -------------------------------------------------------------------------------

  const stateOf = (m) => rows(m, "loadkit_phase").find(({ value }) => value === 1)?.labels.state ?? "idle";
  const cellNow = (m) => {
    if (stateOf(m) !== "visit") return null;
    const starts = rows(m, "loadkit_stage_start_timestamp_seconds");
    return starts.length ? starts.reduce((a, b) => (b.value > a.value ? b : a)).labels : null;
  };
  const measured = (m) => total(m, "loadkit_requests_total", { phase: "measure" });
  const point = (m, at) => ({
    at,
    planned: one(m, "loadkit_target_users"),
    live: one(m, "loadkit_users"),
    inflight: rows(m, "loadkit_inflight").length ? total(m, "loadkit_inflight") : null,
    output: total(m, "loadkit_tokens_total", { direction: "output" }),
    requests: total(m, "loadkit_requests_total"),
    lag: max(rows(m, "loadkit_worker_loop_lag_seconds", { q: "0.99" })),
    cpu: max(rows(m, "loadkit_worker_cpu_ratio")),
  });
  const rateOf = (key, i = history.length - 1) => {
    if (i < 1) return null;
    let j = i - 1;
    while (j > 0 && history[i].at - history[j].at < RATE_S) j -= 1;
    return (history[i][key] - history[j][key]) / (history[i].at - history[j].at);
  };

  // -- the cards ---------------------------------------------------------------------------------------------------

  const generatorTone = ({ lag, cpu }) => {
    const verdict = LIMITS.find((limit) => lag > limit.lag_s || cpu > limit.cpu);
    return lag === null ? "" : { invalid: "bad", suspect: "warn" }[verdict?.status] ?? "good";
  };
  const cardsOf = (m) => {
    const now = history[history.length - 1];
    const cell = cellNow(m);
    const all = total(m, "loadkit_requests_total");
    const failed = all - total(m, "loadkit_requests_total", { outcome: "ok" });
    const judged = total(m, "loadkit_slo_total");
    const retries = total(m, "loadkit_retries_total");
    const workers = one(m, "loadkit_workers", { state: "live" });
    const [lost, left] = [total(m, "loadkit_worker_lost_total"), total(m, "loadkit_rejected_samples_total")];
    const share = all ? failed / all : null;
    const met = judged ? total(m, "loadkit_slo_ok_total") / judged : null;
    return [
      ["Visit", cell ? `${cell.tier} × ${cell.concurrency}` : "none", cell ? "tokens × streams" : "between visits", ""],
      ["Streams live", count(now.live), `${count(now.planned)} planned, ${count(now.inflight)} in flight`,
        now.live !== null && now.live < now.planned ? "warn" : ""],
      ["Generated", `${count(rateOf("output"))} tok/s`, `${count(now.output)} tokens so far`, ""],
      ["Requests", count(all), `${count(rateOf("requests"))} per second, ${count(measured(m))} measured`, ""],
      ["Failed", percent(share), `${count(failed)} requests, ${count(retries)} retries`,
        share === null ? "" : share > 0.05 ? "bad" : share > 0 ? "warn" : "good"],
      ["Objectives met", percent(met), judged ? `of ${count(judged)} judgements` : "none was set",
        met === null ? "" : met >= 0.99 ? "good" : met >= 0.95 ? "warn" : "bad"],
      ["Generator lag", seconds(now.lag), `p99; CPU ${percent(now.cpu)} of a core`, generatorTone(now)],
      ["Processes", count(workers), `${count(lost)} lost, ${count(left)} values left out`, lost ? "bad" : ""],
    ];
  };
  const cards = (m) => $("cards").replaceChildren(...cardsOf(m).map(([title, value, more, mood]) => {
    const [box, name, shown, small] = ["div", "dt", "dd", "dd"].map((tag) => document.createElement(tag));
    [name.textContent, shown.textContent, small.textContent] = [title, value, more];
    [box.className, shown.className, small.className] = [mood, "value", "more"];
    box.append(name, shown, small);
    return box;
  }));

  // -- the charts --------------------------------------------------------------------------------------------------

  const over = (name, key, i, of = (p) => p[key]) => ({ name, tone: tone(i), points: history.map((p, j) => [p.at, of(p, j)]) });
  const times = () => {
    const x = { label: "since the page was opened", show: clock, least: RATE_S };
    const draw = (id, series, y, more = {}) => Charts.lines($(id), series, { x, y: { zero: true, ...y }, label: id, ...more });
    const planned = { ...over("planned", "planned", 1), dashed: true };
    draw("chart-load", [over("in flight", "inflight", 2), over("live", "live", 0), planned],
      { show: count, least: 1 });
    draw("chart-rate", [over(`over ${RATE_S} s`, "output", 0, (_, j) => rateOf("output", j))], { show: count, least: 1 });
    const worst = LIMITS[0];
    draw("chart-lag", [over("worst process", "lag", 0)], { show: seconds, least: worst.lag_s * 1.1 }, { limit: worst.lag_s });
    draw("chart-cpu", [over("busiest process", "cpu", 0)], { show: percent, least: 1 }, { limit: worst.cpu });
  };

  // Two lines for each value of `of`, p50 solid and p95 dashed, over the values of `across`.
  const quantiles = (m, metric, across, of) => {
    const found = histograms(m, `loadkit_${metric}_seconds`, [of, across]);
    const keys = [...found.keys()].map((key) => key.split("\t"));
    return rising(new Set(keys.map(([a]) => a))).flatMap((a, i) => [["p50", 0.5], ["p95", 0.95]].map(([name, q]) => ({
      name: `${of === "concurrency" ? streams(a) : `${a} tokens`} ${name}`,
      key: q === 0.5 ? (of === "concurrency" ? streams(a) : `${a} tokens`) : null,
      tone: tone(i),
      dots: q === 0.5,
      dashed: q !== 0.5,
      points: rising(keys.filter(([b]) => b === a).map(([, b]) => b)).map((b) => [number(b), quantile(q, found.get(`${a}\t${b}`))]),
    })));
  };
  const spans = (m) => {
    const known = (label) => rising(new Set(rows(m, "loadkit_ttft_seconds_count").map(({ labels }) => labels[label]))).map(number);
    const y = { log: true, show: seconds };
    const tiers = { log: true, label: "prompt tokens", show: count, ticks: known("tier") };
    const loads = { log: true, label: "concurrency", show: count, ticks: known("concurrency") };
    Charts.lines($("chart-ttft"), quantiles(m, "ttft", "tier", "concurrency"), { x: tiers, y, label: "TTFT by tier" });
    Charts.lines($("chart-itl"), quantiles(m, "itl", "concurrency", "tier"), { x: loads, y, label: "ITL by concurrency" });
    Charts.lines($("chart-tpot"), quantiles(m, "tpot", "concurrency", "tier"), { x: loads, y, label: "TPOT by concurrency" });
  };
  const heat = (m) => {
    const found = histograms(m, "loadkit_ttft_seconds", ["tier"]);
    const columns = rising(found.keys()).map((tier) => {
      const buckets = found.get(tier).filter(([bound]) => bound !== Infinity);
      const inside = buckets.map(([bound, upTo], i) => [i ? buckets[i - 1][0] : bound / 1.25, bound, upTo - (i ? buckets[i - 1][1] : 0)]);
      const all = inside.reduce((whole, [, , part]) => whole + part, 0);
      return { name: tier, cells: inside.map(([low, high, part]) => [low, high, all ? part / all : 0]) };
    });
    Charts.heat($("chart-heat"), columns, { y: { show: seconds }, xLabel: "prompt tokens", label: "share of TTFT by bucket and tier" });
  };
  const outcomes = (m) => {
    const found = [...grouped(rows(m, "loadkit_requests_total"), ["outcome", "code"])].filter(([, value]) => value > 0);
    found.sort((a, b) => b[1] - a[1]);
    const ended = found.slice(0, 8).map(([key, value]) => {
      const [outcome, code] = key.split("\t");
      return { name: `${outcome} ${code}`, value, tone: outcome === "ok" ? "good" : "bad" };
    });
    const again = [...grouped(rows(m, "loadkit_retries_total"), ["code"])].filter(([, value]) => value > 0);
    const retried = again.map(([code, value]) => ({ name: `tried again after ${code}`, value, tone: "warn" }));
    Charts.bars($("chart-outcomes"), [...ended, ...retried], count);
  };

  // What each further token costs between neighbouring tiers: it rises where TTFT bends.
  const price = (m) => {
    const found = histograms(m, "loadkit_ttft_seconds", ["concurrency", "tier"]);
    const exact = (tier) => one(m, "loadkit_stage_quantile_seconds", { tier, concurrency: "1", metric: "ttft", q: "0.5" });
    const tiers = rising([...found.keys()].map((key) => key.split("\t")).filter(([load]) => load === "1").map(([, tier]) => tier));
    const medians = tiers.map((tier) => [Number(tier), exact(tier) ?? quantile(0.5, found.get(`1\t${tier}`))])
      .filter(([, value]) => value !== null);
    const steps = medians.slice(1).map(([tier, value], i) => ({
      name: `${medians[i][0]} to ${tier}`, value: Math.max((value - medians[i][1]) / (tier - medians[i][0]), 0), tone: "c3",
    }));
    Charts.bars($("chart-price"), steps, (value) => `${seconds(value)}/token`);
    $("knee").textContent = kneeOf(m);
  };
  const kneeOf = (m) => {
    const sure = one(m, "loadkit_knee_confidence_ratio", { axis: "length" });
    const at = one(m, "loadkit_knee_context_tokens");
    const loads = rows(m, "loadkit_knee_concurrency").map(({ labels, value }) => `${count(value)} streams at ${labels.tier} tokens`);
    if (sure === null && !loads.length) return "Rising bars are a knee in the making; the verdict comes with the report.";
    const spoken = at === null || sure === null ? "No knee over length was found: the report says why."
      : `TTFT bends at ${count(at)} tokens (probability ${sure.toFixed(2)}).`;
    return loads.length ? `${spoken} Throughput bends at ${loads.join(", ")}.` : spoken;
  };

  // -- the tables --------------------------------------------------------------------------------------------------

  const HEAD = ["tokens", "streams", "answers", "TTFT p50", "TTFT p95", "ITL p50", "TPOT p50", "failed", "objectives met", "verdict"];
  const table = (m) => {
    const cell = cellNow(m);
    const places = rows(m, "loadkit_ttft_seconds_count").map(({ labels }) => labels);
    places.sort((a, b) => number(a.tier) - number(b.tier) || number(a.concurrency) - number(b.concurrency));
    const by = ["tier", "concurrency"];
    const found = Object.fromEntries(["ttft", "itl", "tpot"].map((name) => [name, histograms(m, `loadkit_${name}_seconds`, by)]));
    $("cells").tHead.replaceChildren(line("th", HEAD.map((text) => [text])));
    $("cells").tBodies[0].replaceChildren(...places.map((place) => {
      const at = { tier: place.tier, concurrency: place.concurrency };
      const row = line("td", cellsOf(m, at, (metric, q) => {
        const exact = one(m, "loadkit_stage_quantile_seconds", { ...at, metric, q: String(q) });
        const read = quantile(q, found[metric].get(`${at.tier}\t${at.concurrency}`) || []);
        return exact !== null ? seconds(exact) : read === null ? "–" : `~ ${seconds(read)}`;
      }));
      if (cell && cell.tier === at.tier && cell.concurrency === at.concurrency) row.className = "now";
      return row;
    }));
  };
  const cellsOf = (m, at, time) => {
    const all = total(m, "loadkit_requests_total", { ...at, phase: "measure" });
    const failed = all - total(m, "loadkit_requests_total", { ...at, phase: "measure", outcome: "ok" });
    const judged = total(m, "loadkit_slo_total", at);
    const verdict = rows(m, "loadkit_cell_validity", at).find(({ value }) => value === 1)?.labels.status ?? "";
    const mood = { valid: "good", suspect: "warn", invalid: "bad" }[verdict];
    return [
      [at.tier], [at.concurrency], [count(all - failed)], [time("ttft", 0.5)], [time("ttft", 0.95)], [time("itl", 0.5)],
      [time("tpot", 0.5)], [all ? percent(failed / all) : "–", failed ? "bad" : ""],
      [judged ? percent(total(m, "loadkit_slo_ok_total", at) / judged) : "–"], [verdict, mood],
    ];
  };
  const line = (tag, texts) => {
    const row = document.createElement("tr");
    for (const [text, mood] of texts) {
      const cell = document.createElement(tag);
      cell.textContent = text;
      if (mood) cell.className = "toned " + mood;
      row.append(cell);
    }
    return row;
  };

  const SERVER = [
    ["running_requests", "running", count], ["waiting_requests", "waiting", count], ["kv_usage_ratio", "KV cache in use", percent],
    ["preemptions", "preemptions", count], ["prefix_hit_ratio", "prefix hits", percent], ["queue_seconds", "queue", seconds],
    ["prefill_seconds", "prefill", seconds], ["ttft_seconds", "TTFT seen by the server", seconds],
  ];
  const BOARD = [
    ["frequency_hertz", (value) => `${(value / 1e9).toFixed(2)} GHz`], ["temperature_celsius", (value) => `${value.toFixed(1)} °C`],
    ["power_watts", (value) => `${value.toFixed(1)} W`], ["memory_bytes_per_second", (value) => `${(value / 1e9).toFixed(2)} GB/s`],
  ];
  const pairs = (id, list) => {
    $(id).hidden = !list.length;
    $(id).querySelector("dl").replaceChildren(...list.map(([name, value]) => {
      const [box, term, shown] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
      [term.textContent, shown.textContent] = [name, value];
      box.append(term, shown);
      return box;
    }));
  };
  const others = (m) => {
    pairs("server", SERVER.map(([name, label, show]) => [label, one(m, `loadkit_server_${name}`), show])
      .filter(([, value]) => value !== null).map(([label, value, show]) => [label, show(value)]));
    pairs("board", BOARD.flatMap(([name, show]) => rows(m, `loadkit_board_${name}`)
      .map(({ labels, value }) => [labels.sensor, show(value)])));
  };

  // -- again and again ---------------------------------------------------------------------------------------------

  const head = (m) => {
    const about = rows(m, "loadkit_run_info")[0]?.labels ?? {};
    const end = rows(m, "loadkit_endpoint_info")[0]?.labels ?? {};
    $("run").textContent = about.run ?? "";
    const parts = [end.model, end.protocol, end.host, about.plan && `plan ${about.plan}`, about.seed && `seed ${about.seed}`];
    $("about").textContent = parts.filter(Boolean).join(" · ");
    if (ended) state("ended: this is the last that was heard", "");
    else state({ idle: "between visits", visit: "measuring", linger: "finished" }[stateOf(m)], "good");
  };
  const state = (text, mood) => {
    $("state").textContent = text;
    $("state").className = "pill " + mood;
  };
  const show = () => {
    if (!latest) return;
    for (const part of [head, cards, times, spans, heat, outcomes, price, table, others]) part(latest);
    document.documentElement.dataset.points = history.length;
  };
  const take = (text) => {
    const m = Metrics.parse(text);
    const now = rows(m, "loadkit_run_info")[0]?.labels.run ?? null;
    if (now !== run) [run, history] = [now, []];
    const began = history[0]?.began ?? performance.now();
    history.push({ ...point(m, (performance.now() - began) / 1000), began });
    if (history.length > KEPT) history = history.filter((_, i) => i % 2 === 0);
    [latest, ended] = [m, false];
    show();
  };
  const look = async () => {
    const began = performance.now();
    try {
      const answer = await fetch("/metrics", { headers: { Accept: "text/plain" }, cache: "no-store" });
      take(await answer.text());
    } catch {
      ended = true;
      state("nobody answers", "bad");
      show();
      document.documentElement.dataset.ended = "yes";
    }
    // A large page takes its time to write and to read: it is asked for less often.
    setTimeout(look, Math.max(EVERY_MS, 5 * (performance.now() - began)));
  };
  addEventListener("resize", show);
  look();
})();
