// SPDX-License-Identifier: Apache-2.0
// A plan as arrays, for the maps.

import {number} from './api.js';

export class Placement {
  constructor(plan) {
    this.epoch = number(plan.epoch);
    this.workers = (plan.workers ?? []).map((worker) => worker.id);
    this.experts = plan.shape?.experts ?? 0;
    this.layers = (plan.layers ?? []).map((layer) => layer.layer ?? 0);
    this.configs = plan.configs ?? [];
    const cells = this.layers.length * this.experts;
    // By [layer, expert]: how many copies there are, and the worker of the first one.
    this.copies = new Uint8Array(cells);
    this.first = new Uint16Array(cells);
    this.all = (plan.layers ?? []).map((layer) => layer.experts ?? []);
    this.ofWorker = new Uint32Array(this.workers.length);
    this.all.forEach((experts, layer) => {
      for (const copy of experts) {
        const at = layer * this.experts + (copy.expert ?? 0);
        if (this.copies[at]++ === 0) this.first[at] = copy.worker ?? 0;
        ++this.ofWorker[copy.worker ?? 0];
      }
    });
  }

  // The ids of the workers with a copy of the expert.
  workersOf(layer, expert) {
    return this.all[layer].filter((copy) => (copy.expert ?? 0) === expert)
        .map((copy) => this.workers[copy.worker ?? 0]);
  }
}
