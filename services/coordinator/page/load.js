// SPDX-License-Identifier: Apache-2.0
// The load of experts over time: samples of GetLoad, newest last, and the view of them.

import {clock, count, number, rate, seconds} from './api.js';
import {Table, byId, setText} from './dom.js';
import {addTimes, timesOf} from './latency.js';
import {CellMap, isDark, labelRows, legend, ramp} from './maps.js';

function numbers(base64) {
  const bytes = Uint8Array.from(atob(base64 ?? ''), (c) => c.charCodeAt(0));
  return new Uint32Array(bytes.buffer, 0, bytes.length >> 2);
}

export class LoadSamples {
  constructor() {
    this.clear();
  }

  clear() {
    Object.assign(this, {shape: '', layers: [], experts: 0, samples: [], complete: false, last: 0});
  }

  // Takes an answer of GetLoad in. Returns whether anything changed.
  add(answer) {
    const layers = answer.layers ?? [];
    const shape = JSON.stringify([answer.deployment, layers, answer.experts]);
    if (shape !== this.shape || number(answer.last) < this.last) {
      this.clear();
      Object.assign(this, {shape, layers, experts: answer.experts ?? 0});
    }
    this.last = number(answer.last);
    const first = number(answer.first);
    const byNumber = new Map(this.samples.map((sample) => [sample.number, sample]));
    for (const one of answer.samples ?? []) {
      const rows = numbers(one.rows);
      const total = rows.reduce((sum, value) => sum + value, 0);
      const workers = (one.workers ?? []).map(
          (worker) => ({id: worker.id, rows: numbers(worker.rows), times: timesOf(worker.times)}));
      byNumber.set(number(one.number), {number: number(one.number), begin: Date.parse(one.begin),
                                        duration: seconds(one.duration), rows, total, workers});
    }
    this.samples = [...byNumber.values()].filter((sample) => sample.number >= first)
                       .sort((a, b) => a.number - b.number);
    this.complete = this.samples.length === 0 || this.samples[0].number <= first;
    return (answer.samples ?? []).length > 0;
  }

  // The arguments of the next question: what is new first, then what is older.
  next() {
    if (this.samples.length === 0) return {limit: 1};
    return {after: this.samples[this.samples.length - 1].number - 1};
  }
  older() {
    return this.complete ? null : {before: this.samples[0].number};
  }

  // The sum of all samples, as one.
  sum() {
    const all = this.samples;
    if (all.length === 0) return null;
    const rows = new Float64Array(this.layers.length * this.experts);
    const workers = new Map();
    for (const sample of all) {
      for (let i = 0; i < rows.length; ++i) rows[i] += sample.rows[i];
      for (const worker of sample.workers) {
        const sum = workers.get(worker.id) ??
            {id: worker.id, rows: new Float64Array(this.layers.length), times: []};
        worker.rows.forEach((value, i) => sum.rows[i] += value);
        addTimes(sum.times, worker.times);
        workers.set(worker.id, sum);
      }
    }
    return {
      begin: all[0].begin, rows, number: -1,
      duration: all.reduce((sum, sample) => sum + sample.duration, 0),
      total: all.reduce((sum, sample) => sum + sample.total, 0),
      workers: [...workers.values()],
    };
  }
}

const byMost = (a, b) => b.ratio - a.ratio;

export class LoadView {
  // The sample that is shown is remembered by its number: its place changes as older ones arrive and
  // leave. `workersOf(layer id, expert)` names the workers of an expert. `changed` is called when another
  // sample is shown.
  constructor(workersOf, changed) {
    Object.assign(this, {workersOf, changed, samples: new LoadSamples(), live: true, chosen: 0, shown: null});
    this.map = new CellMap(byId('load-map'), byId('load-hint'),
                           (row, column) => this.describe(row, column));
    this.map.idleHint = 'Point at a cell, or touch it, for its expert.';
    this.time = byId('load-time');
    this.time.addEventListener('input', () => {
      const {samples} = this.samples;
      this.live = Number(this.time.value) >= samples.length - 1;
      this.chosen = samples[Number(this.time.value)]?.number ?? 0;
      this.render();
    });
    byId('load-live').addEventListener('click', () => {
      this.live = true;
      this.render();
    });
    for (const id of ['load-span', 'load-scale']) {
      byId(id).addEventListener('change', () => this.render());
    }
    const meaning = (ratio) => `${ratio.toFixed(1)} x`;
    this.experts = new Table(byId('hot-experts'), [
      {title: 'Layer', data: (one) => one.layer, class: 'number'},
      {title: 'Expert', data: (one) => one.expert, class: 'number'},
      {title: 'Rows', data: (one) => rate(one.rate), class: 'number'},
      {title: 'To mean', data: (one) => meaning(one.ratio), class: 'number'},
      {title: 'On', data: (one) => one.workers.join(', ')},
    ], {key: (one) => `${one.layer} ${one.expert}`, empty: 'No rows were served.', kind: 'small'});
    this.layers = new Table(byId('hot-layers'), [
      {title: 'Layer', data: (one) => one.layer, class: 'number'},
      {title: 'Busiest', data: (one) => one.worker},
      {title: 'Rows', data: (one) => rate(one.rate), class: 'number'},
      {title: 'To mean', data: (one) => meaning(one.ratio), class: 'number'},
    ], {key: (one) => one.layer, empty: 'No rows were served.', kind: 'small'});
  }

  clear() {
    this.samples.clear();
    this.live = true;
    this.render();
  }

  describe(row, column) {
    const {layers, experts} = this.samples;
    const value = this.shown.rows[row * experts + column];
    const layerTotal = this.totals[row];
    const mean = layerTotal / experts;
    const workers = this.workersOf(layers[row], column).join(', ') || 'no worker';
    return `layer ${layers[row]}, expert ${column} on ${workers}: ${count(value)} rows in ` +
        `${this.shown.duration.toFixed(1)} s, ${rate(value / this.shown.duration)}, ` +
        `${mean > 0 ? (value / mean).toFixed(2) : 0} x the layer's mean`;
  }

  render() {
    const {samples, layers, experts} = this.samples;
    const whole = byId('load-span').value === 'all';
    this.time.max = String(Math.max(0, samples.length - 1));
    // The one that was chosen, or the one after it if that is no longer kept.
    const found = samples.findIndex((sample) => sample.number >= this.chosen);
    const at = this.live || found < 0 ? samples.length - 1 : found;
    this.time.value = String(at);
    this.shown = samples.length === 0 ? null : whole ? this.samples.sum() : samples[at];
    byId('scrub').hidden = whole || samples.length === 0;
    byId('load-live').disabled = this.live;
    byId('load').classList.toggle('empty', this.shown === null);
    this.map.idleHint = !this.shown ? 'No rows were served in the last ten minutes.' :
        this.shown.total === 0 ? 'No rows were counted: GPUs exchange those of sessions in lockstep by themselves.' :
        'Point at a cell, or touch it, for its expert.';
    this.drawMap(layers, experts);
    this.drawLine(at);
    this.fillTables(layers, experts);
    if (this.shown) {
      const end = this.shown.begin + this.shown.duration * 1000;
      setText(byId('load-at'), `${clock(this.shown.begin)} to ${clock(end)}, ` +
          `${rate(this.shown.total / this.shown.duration)}${this.live ? ', newest' : ''}`);
    }
    this.changed();
  }

  drawMap(layers, experts) {
    const rowHeight = Math.max(4, Math.min(18, Math.floor(430 / Math.max(1, layers.length))));
    const scale = byId('load-scale').value;
    const colors = ramp(scale);
    if (!this.shown) {
      this.map.draw(0, 0, rowHeight, () => colors[0]);
      byId('load-layers').replaceChildren();
      delete byId('load-layers').dataset.labels;
      byId('load-legend').replaceChildren();
      delete byId('load-legend').dataset.key;
      return;
    }
    const {rows, duration} = this.shown;
    this.totals = layers.map((_, layer) => {
      let sum = 0;
      for (let i = layer * experts; i < (layer + 1) * experts; ++i) sum += rows[i];
      return sum;
    });
    labelRows(byId('load-layers'), layers, rowHeight);
    if (scale === 'rows') {
      // The square root keeps experts with few rows apart from those with none.
      const most = rows.reduce((a, b) => Math.max(a, b), 1);
      this.map.draw(layers.length, experts, rowHeight, (layer, expert) =>
          colors[Math.round(Math.sqrt(rows[layer * experts + expert] / most) * 255)]);
      legend(byId('load-legend'), 'rows', '0', rate(most / duration));
    } else {
      // 0, 0.5, 1, 2, 4, 8 times the mean are as far apart from each other.
      this.map.draw(layers.length, experts, rowHeight, (layer, expert) => {
        const ratio = rows[layer * experts + expert] * experts / Math.max(1, this.totals[layer]);
        const step = ratio <= 1 ? ratio * 2 : 2 + Math.log2(ratio);
        return colors[Math.round(Math.min(step / 5, 1) * 255)];
      });
      legend(byId('load-legend'), 'mean', '0', '8 x');
    }
  }

  // The total over time, above the slider.
  drawLine(at) {
    const {samples} = this.samples;
    const canvas = byId('load-line');
    const [width, height] = [Math.max(samples.length, 1) * 4, 40];
    Object.assign(canvas, {width, height});
    const context = canvas.getContext('2d');
    const most = Math.max(...samples.map((sample) => sample.total / sample.duration), 1);
    samples.forEach((sample, i) => {
      const tall = Math.max(1, sample.total / sample.duration / most * height);
      context.fillStyle = i === at ? '#e8622c' : isDark() ? '#5f7f9f' : '#8fb0cf';
      context.fillRect(i * 4, height - tall, 3, tall);
    });
  }

  fillTables(layers, experts) {
    const hot = [];
    const uneven = [];
    if (this.shown) {
      const {rows, duration, workers} = this.shown;
      layers.forEach((layer, i) => {
        const mean = this.totals[i] / experts;
        if (mean === 0) return;
        for (let expert = 0; expert < experts; ++expert) {
          const value = rows[i * experts + expert];
          if (value > mean * 1.5) hot.push({layer, expert, ratio: value / mean, rate: value / duration});
        }
        if (workers.length < 2) return;
        const top = workers.reduce((a, b) => b.rows[i] > a.rows[i] ? b : a);
        uneven.push({layer, worker: top.id, rate: top.rows[i] / duration,
                     ratio: top.rows[i] * workers.length / Math.max(1, this.totals[i])});
      });
    }
    const hottest = hot.sort((a, b) => b.rate - a.rate || byMost(a, b)).slice(0, 8);
    for (const one of hottest) one.workers = this.workersOf(one.layer, one.expert);
    this.experts.update(hottest);
    this.layers.update(uneven.sort(byMost).slice(0, 8));
  }

  // Rows per second of a worker, over all layers; null: not known.
  rateOf(worker) {
    if (!this.shown) return null;
    const rows = this.shown.workers.find((one) => one.id === worker)?.rows;
    return rows ? rows.reduce((sum, value) => sum + value, 0) / this.shown.duration : 0;
  }
}
