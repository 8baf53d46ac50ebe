// SPDX-License-Identifier: Apache-2.0
// How long steps took at each worker, over the samples of the load.

import {clock, rate, word} from './api.js';
import {Table, byId, setOptions} from './dom.js';
import {CellMap, bar, labelRows, legend, ramp} from './maps.js';

// Upper bounds in seconds: 10 us, 20 us, 50 us, ... 10 s. One bucket more has none.
const bounds = Array.from({length: 19}, (_, i) => [1, 2, 5][i % 3] * 10 ** (Math.floor(i / 3) - 5));

// The message leaves out zeros at its end.
function counts(message) {
  const buckets = new Float64Array(bounds.length + 1);
  (message?.buckets ?? []).slice(0, buckets.length).forEach((value, i) => buckets[i] = Number(value));
  return buckets;
}
const countOf = (buckets) => buckets.reduce((sum, value) => sum + value, 0);

// The times of a worker in a sample, by kind of work: those of GetLoad.
export function timesOf(messages) {
  return (messages ?? []).map((one) => ({kind: word(one.kind), step: counts(one.step), queue: counts(one.queue)}));
}

// Adds `more` to `to`, kind by kind.
export function addTimes(to, more) {
  for (const one of more) {
    let same = to.find((other) => other.kind === one.kind);
    if (!same) to.push(same = {kind: one.kind, step: counts(null), queue: counts(null)});
    for (const part of ['step', 'queue']) one[part].forEach((value, i) => same[part][i] += value);
  }
}

// The value below which `share` of all are, linear within its bucket as Prometheus has it; null if there
// are none, Infinity above all bounds.
export function quantile(buckets, share) {
  const rank = share * countOf(buckets);
  if (rank === 0) return null;
  let below = 0;
  for (let i = 0; i < bounds.length; ++i) {
    if (buckets[i] > 0 && below + buckets[i] >= rank) {
      const from = i === 0 ? 0 : bounds[i - 1];
      return from + (bounds[i] - from) * (rank - below) / buckets[i];
    }
    below += buckets[i];
  }
  return Infinity;
}

// '850 us', '1.2 ms', '3.0 s', 'over 10 s'; '-' if it is not known.
export function took(value) {
  if (value === null) return '-';
  if (value === Infinity) return 'over 10 s';
  if (value < 9.995e-4) return `${Math.round(value * 1e6)} us`;
  if (value < 0.9995) return `${(value * 1e3).toFixed(value < 9.95e-3 ? 1 : 0)} ms`;
  return `${value.toFixed(1)} s`;
}

const measures = {
  'step-p99': ['step', 0.99], 'step-p50': ['step', 0.5], 'queue-p99': ['queue', 0.99], 'queue-p50': ['queue', 0.5],
};

// Long names mostly begin alike, and only their ends tell workers apart.
function shortNames(names) {
  if (names.length < 2 || names.every((name) => name.length <= 10)) return names;
  let common = 0;
  while (names.every((name) => common < name.length && name[common] === names[0][common])) ++common;
  const cut = names[0].slice(0, common).lastIndexOf('-') + 1;
  return names.map((name) => name.slice(cut));
}

const byName = (a, b) => a.localeCompare(b, 'en', {numeric: true});

export class LatencyView {
  // `load` has the samples and the one that is shown; `changed` is called when another kind of work is.
  constructor(load, changed) {
    Object.assign(this, {load, names: []});
    this.map = new CellMap(byId('latency-map'), byId('latency-hint'),
                           (row, column) => this.describe(row, column));
    for (const id of ['latency-work', 'latency-measure']) byId(id).addEventListener('change', changed);
    this.table = new Table(byId('latency-table'), [
      {title: 'Worker', data: (one) => one.id, class: 'name'},
      {title: 'Steps', data: (one) => one.steps === null ? 'not reported' : rate(one.steps), class: 'number'},
      {title: 'Step p50', data: (one) => took(one['step-p50']), class: 'number'},
      {title: 'Step p99', data: (one) => [one.share, took(one['step-p99'])], class: 'number',
       show: ([share, text]) => bar(share, text)},
      {title: 'Queue p50', data: (one) => took(one['queue-p50']), class: 'number'},
      {title: 'Queue p99', data: (one) => took(one['queue-p99']), class: 'number'},
    ], {key: (one) => one.id, empty: 'No such steps were served then.', max: 1000, kind: 'small'});
  }

  get kind() {
    return byId('latency-work').value;
  }

  // A worker's value in a sample; null: no such steps.
  valueOf(worker, measure) {
    const key = `${this.kind} ${measure}`;
    worker.values ??= {};
    if (worker.values[key] === undefined) {
      const times = worker.times.find((one) => one.kind === this.kind);
      const [part, share] = measures[measure];
      worker.values[key] = times ? quantile(times[part], share) : null;
    }
    return worker.values[key];
  }

  describe(row, column) {
    const sample = this.samples[column];
    const worker = this.cells[column].get(this.names[row]);
    const when = `${clock(sample.begin)} to ${clock(sample.begin + sample.duration * 1000)}`;
    const times = worker?.times.find((one) => one.kind === this.kind);
    if (!times) return `${this.names[row]}, ${when}: no ${this.kind} steps`;
    const both = (part) => `p50 ${took(this.valueOf(worker, `${part}-p50`))}, p99 ${took(this.valueOf(worker, `${part}-p99`))}`;
    return `${this.names[row]}, ${when}: ${rate(countOf(times.step) / sample.duration)} ${this.kind} steps, ` +
        `step ${both('step')}; queue ${both('queue')}`;
  }

  // The p99 over all workers in the sample that is shown; null: not known.
  get p99() {
    const all = [];
    for (const worker of this.load.shown?.workers ?? []) addTimes(all, worker.times);
    const of = all.find((one) => one.kind === this.kind);
    return of ? quantile(of.step, 0.99) : null;
  }

  render() {
    const {samples} = this.load.samples;
    const kinds = new Set();
    const names = new Set();
    for (const sample of samples) {
      for (const worker of sample.workers) {
        names.add(worker.id);
        for (const one of worker.times) kinds.add(one.kind);
      }
    }
    this.samples = samples;
    this.names = [...names].sort(byName);
    this.cells = samples.map((sample) => new Map(sample.workers.map((worker) => [worker.id, worker])));
    setOptions(byId('latency-work'), [...kinds].sort().map((kind) => [kind, kind]));
    byId('latency').classList.toggle('empty', kinds.size === 0);
    this.map.idleHint = kinds.size > 0 ? 'A row for each worker, a column for each interval, newest on the right. Point at a cell, or touch it, for its times.' :
        samples.length > 0 ? 'These workers do not report how long their steps take; syctl get metrics may know.' :
        'No steps were served in the last ten minutes.';
    this.drawMap(kinds.size > 0);
    this.fillTable();
  }

  drawMap(known) {
    const rowHeight = Math.max(6, Math.min(18, Math.floor(320 / Math.max(1, this.names.length))));
    const colors = ramp('rows');
    const measure = byId('latency-measure').value;
    const values = known ? this.names.map((name) => this.cells.map((cell) => {
      const worker = cell.get(name);
      return worker ? this.valueOf(worker, measure) : null;
    })) : [];
    const finite = values.flat().filter((value) => value !== null).map((value) => Math.min(value, 10));
    const low = finite.reduce((a, b) => Math.min(a, b), Infinity);
    // At least a factor of ten, so that workers that are alike look alike.
    const high = Math.max(finite.reduce((a, b) => Math.max(a, b), 0), low * 10);
    this.map.draw(values.length, known ? this.samples.length : 0, rowHeight, (row, column) => {
      const value = values[row][column];
      if (value === null) return colors[0];
      return colors[40 + Math.round(Math.log(Math.min(value, 10) / low) / Math.log(high / low) * 215)];
    });
    labelRows(byId('latency-rows'), known ? shortNames(this.names) : [], rowHeight);
    if (finite.length > 0) legend(byId('latency-legend'), 'rows', took(low), took(high));
  }

  // The slowest first; those that do not tell are last.
  fillTable() {
    const {shown} = this.load;
    const rows = [];
    for (const worker of shown?.workers ?? []) {
      const times = worker.times.find((one) => one.kind === this.kind);
      if (!times && worker.times.length > 0) continue;  // it does other work
      const row = {id: worker.id, steps: times ? countOf(times.step) / shown.duration : null};
      for (const [name, [part, share]] of Object.entries(measures)) {
        row[name] = times ? quantile(times[part], share) : null;
      }
      rows.push(row);
    }
    const limited = (value) => value === null ? -1 : Math.min(value, 10);
    const most = Math.max(...rows.map((row) => limited(row['step-p99'])), 1e-9);
    for (const row of rows) row.share = Math.max(0, limited(row['step-p99'])) / most;
    const measure = byId('latency-measure').value;
    this.table.update(rows.sort((a, b) => limited(b[measure]) - limited(a[measure]) || byName(a.id, b.id)));
  }
}
