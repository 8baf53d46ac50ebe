// SPDX-License-Identifier: Apache-2.0
// The tables of workers, epochs, sessions and events.

import {age, bytes, clock, number, rate, seconds, word} from './api.js';
import {Table, badge, byId, el} from './dom.js';
import {bar} from './maps.js';

const workerMeaning = {
  live: 'good', cordoned: 'idle', drained: 'idle', draining: 'warn', leaving: 'warn',
  disconnected: 'bad', stuck: 'bad', unreachable: 'bad',
};

// What a worker can do, and what it lacks of what others can: that decides how rows travel.
function abilities([values, all]) {
  const lacks = all.filter((value) => !values.includes(value));
  const has = values.length <= 4 ? values.join(' ') :
      el('details', {}, el('summary', {}, `${values.length} kinds`), values.join(' '));
  return [has, ...lacks.flatMap((value) => [' ', el('span', {class: 'chip odd'}, `no ${value}`)])];
}

const inAny = (lists) => [...new Set(lists.flat())];

function stagingText(staging) {
  return (staging ?? []).map((one) => {
    const [done, total] = [number(one.progress?.bytes_done), number(one.progress?.bytes)];
    const share = total > 0 ? `, ${Math.floor(done / total * 100)} % of ${bytes(total)}` : '';
    const what = `${one.progress?.deployment ?? ''}@${number(one.progress?.epoch)}`;
    return `${what} ${(one.step ?? '').replace('STAGING_STEP_', '').toLowerCase()}${share}`;
  }).join('; ');
}

export class WorkersView {
  constructor(load) {
    this.load = load;
    this.table = new Table(byId('worker-table'), [
      {title: 'Worker', data: (one) => one.id, class: 'name'},
      {title: 'State', data: (one) => word(one.state),
       show: (state) => badge(state, workerMeaning[state] ?? 'idle')},
      {title: 'Remark', class: 'remark', data: (one) => [one.problem ?? '', stagingText(one.staging)],
       show: ([problem, staging]) => problem || staging ?
           [problem ? el('span', {class: 'bad-text'}, problem) : '', staging] : []},
      {title: 'Device', data: (one) => [one.device, one.capabilities?.kernel_family ?? ''],
       show: ([device, kernels]) => kernels.startsWith(device) ? kernels : [device, kernels].filter(Boolean).join(' ')},
      {title: 'Rows', class: 'number', data: (one) => one.rate === null ? null :
          [rate(one.rate), one.share.toFixed(2)],
       show: (data) => data === null ? '' : bar(data[1], data[0])},
      {title: 'Experts', data: (one) => one.experts ?? 0, class: 'number'},
      {title: 'Holds', data: (one) => (one.resident ?? []).map(
          (epoch) => `${epoch.deployment}@${number(epoch.epoch)}${epoch.committed ? '' : ' (staged)'}`).join(', ') || 'nothing'},
      {title: 'Takes rows as', data: (one) => [one.dtypes, this.known.dtypes],
       show: abilities},
      {title: 'Weights', data: (one) => [one.schemes, this.known.schemes],
       show: abilities},
      {title: 'Transports', data: (one) => (one.capabilities?.transports ?? []).join(' ')},
      {title: 'Memory', data: (one) => bytes(number(one.capabilities?.weight_bytes_max)) || 'no bound', class: 'number'},
      {title: 'Address', data: (one) => one.endpoint ?? ''},
    ], {key: (one) => one.id, empty: 'No worker is a member. Start one with switchyard-worker --coordinator HOST:PORT.', max: 1000, kind: 'tight'});
  }

  show(workers) {
    const rows = workers.map((worker) => ({
      ...worker,
      device: word(worker.capabilities?.device),
      dtypes: (worker.capabilities?.wire_dtypes ?? []).map(word),
      schemes: (worker.capabilities?.schemes ?? []).map(word),
      rate: this.load.rateOf(worker.id),
    }));
    this.known = {dtypes: inAny(rows.map((one) => one.dtypes)), schemes: inAny(rows.map((one) => one.schemes))};
    const most = Math.max(...rows.map((one) => one.rate ?? 0), 1e-9);
    for (const one of rows) one.share = (one.rate ?? 0) / most;
    this.table.update(rows);
  }
}

// Epochs as the events tell of them: each with its last state and all that was said.
export function epochsOf(events, deployment) {
  const epochs = new Map();
  for (const event of events) {
    if (event.name !== deployment || word(event.object) !== 'deployment' || !event.reason?.startsWith('Epoch')) continue;
    const match = /\bepoch (\d+)/.exec(event.message ?? '');
    if (!match) continue;
    const epoch = epochs.get(match[1]) ?? {number: Number(match[1]), said: []};
    epochs.set(match[1], epoch);
    epoch.said.push({at: event.last, text: event.message.replace(/^epoch \d+:? /, '')});
    epoch.state = event.reason;
    epoch.at = event.last;
  }
  return [...epochs.values()].sort((a, b) => b.number - a.number);
}

export class EpochsView {
  constructor() {
    this.table = new Table(byId('epoch-table'), [
      {title: 'Epoch', data: (one) => one.number, class: 'number'},
      {title: 'State', data: (one) => one.word,
       show: (state) => badge(state, {serves: 'good', 'given up': 'bad', preparing: 'warn'}[state] ?? 'idle')},
      {title: 'Since', data: (one) => clock(one.at)},
      {title: 'What changed', class: 'wide', data: (one) => one.said,
       show: (said) => el('ul', {}, said.map((line) => el('li', {}, el('time', {}, clock(line.at)), ` ${line.text}`)))},
    ], {key: (one) => one.number, empty: 'No epoch has been made since the coordinator started.', max: 100});
  }

  show(events, deployment) {
    const serving = number(deployment?.committed_epoch);
    const epochs = epochsOf(events, deployment?.spec?.name);
    for (const one of epochs) {
      one.word = one.number === serving ? 'serves' : one.state === 'EpochGivenUp' ? 'given up' :
          one.state === 'EpochPreparing' ? 'preparing' : 'former';
    }
    this.table.update(epochs);
  }
}

export class SessionsView {
  constructor() {
    this.table = new Table(byId('session-table'), [
      {title: 'Session', data: (one) => one.name, class: 'name'},
      {title: 'Phase', data: (one) => word(one.phase)},
      {title: 'Mode', data: (one) => word(one.mode) || 'not known'},
      {title: 'Source', data: (one) => [word(one.source), one.peer ?? ''].filter(Boolean).join(' at ') || 'not known'},
      {title: 'Rows travel', data: (one) => [word(one.binding) || 'not known', one.binding_reason ?? ''],
       show: ([binding, why]) => el('span', {title: why}, binding)},
      {title: 'Group', data: (one) => one.ranks ? `${one.group?.name ?? ''} ${one.ranks} ranks`.trim() : ''},
      {title: 'Epoch', data: (one) => number(one.epoch), class: 'number'},
      {title: 'Age', data: (one) => age(seconds(one.age)), class: 'number'},
    ], {key: (one) => one.name, empty: 'No session is open.', kind: 'tight'});
  }

  show(sessions, deployment) {
    this.table.update(sessions.filter((one) => one.deployment === deployment));
  }
}

export class EventsView {
  constructor() {
    this.events = [];
    byId('events-warnings').addEventListener('change', () => this.show(this.events));
    this.table = new Table(byId('event-table'), [
      {title: 'Last', data: (one) => [one.last, one.first, one.count ?? 1],
       show: ([last, first, times]) => el('time', {title: `first at ${first}`}, times > 1 ? `${clock(last)} (${times} times)` : clock(last))},
      {title: 'Type', data: (one) => one.warning ? 'warning' : 'normal',
       show: (type) => badge(type, type === 'warning' ? 'warn' : 'idle')},
      {title: 'Object', data: (one) => `${word(one.object)}/${one.name}`},
      {title: 'Reason', data: (one) => one.reason},
      {title: 'Message', data: (one) => one.message, class: 'wide'},
    ], {key: (one) => one.number, empty: 'Nothing has happened.'});
  }

  show(events) {
    this.events = events;
    const only = byId('events-warnings').checked;
    this.table.update(events.filter((one) => !only || one.warning).reverse());
  }
}
