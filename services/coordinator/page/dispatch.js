// SPDX-License-Identifier: Apache-2.0
// How rows travel: the configs of a plan, layers with the same ones together, and the decision about
// one layer, as syctl explain prints it.

import {get, ranges, word} from './api.js';
import {Table, byId, el, setOptions} from './dom.js';

// Configs that differ in their layer only, as one row.
export function groupConfigs(configs) {
  const groups = new Map();
  for (const config of configs) {
    const {layer = 0, ...rest} = config;
    const key = JSON.stringify(rest);
    if (!groups.has(key)) groups.set(key, {key, layers: [], config: rest});
    groups.get(key).layers.push(layer);
  }
  return [...groups.values()];
}

const scaleOf = (config) => {
  const scale = word(config.wire_scale);
  return scale === '' || scale === 'none' ? '' : `, ${scale} scales`;
};

function reasons(trail) {
  if (trail.length === 0) return '';
  return el('details', {}, el('summary', {}, trail[0]),
            el('ol', {}, trail.map((reason) => el('li', {}, reason))));
}

export class DispatchView {
  constructor() {
    this.deployment = '';
    this.table = new Table(byId('dispatch-table'), [
      {title: 'Layers', data: (one) => ranges(one.layers)},
      {title: 'Phase', data: (one) => word(one.config.phase)},
      {title: 'From, to', class: 'nowrap', data: (one) =>
          `${word(one.config.edge?.source)} to ${word(one.config.edge?.worker)}`},
      {title: 'Mode', data: (one) => word(one.config.mode)},
      {title: 'Rows', data: (one) => word(one.config.wire_dtype) + scaleOf(one.config)},
      {title: 'Results', data: (one) => word(one.config.combine_dtype)},
      {title: 'Weights', data: (one) => word(one.config.scheme)},
      {title: 'Most tokens', data: (one) => one.config.max_tokens_per_step || 'any', class: 'number'},
      {title: 'Why', data: (one) => one.config.trail ?? [], show: reasons, class: 'wide'},
    ], {key: (one) => one.key, empty: 'No epoch serves.'});
    this.layer = byId('explain-layer');
    this.layer.addEventListener('change', () => this.explain());
    byId('explain').addEventListener('toggle', () => this.explain());
  }

  show(deployment, placement) {
    this.table.update(groupConfigs(placement?.configs ?? []));
    const layers = placement?.layers ?? deployment?.layers ?? [];
    setOptions(this.layer, layers.map((layer) => [String(layer), String(layer)]));
    const key = JSON.stringify([deployment?.spec?.name, placement?.epoch]);
    if (this.shown === key) return;
    this.shown = key;
    this.deployment = deployment?.spec?.name ?? '';
    this.explain();
  }

  // Asked for only while it is looked at: the coordinator makes the decision again for it.
  async explain() {
    if (!byId('explain').open || this.layer.value === '') return;
    try {
      const answer = await get('layer', {deployment: this.deployment, layer: this.layer.value});
      const pages = (answer.traces ?? []).map((trace) => trace.page);
      byId('explain-text').replaceChildren(...pages.map((page) => el('pre', {}, page)));
      if (pages.length === 0) byId('explain-text').textContent = answer.activity ?? '';
    } catch (error) {
      byId('explain-text').replaceChildren(el('p', {class: 'banner bad'}, error.message));
    }
  }
}
