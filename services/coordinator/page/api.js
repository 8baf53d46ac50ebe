// SPDX-License-Identifier: Apache-2.0
// The coordinator's answers: protobuf's JSON of the messages in coordinator.proto. Fields that have
// their default are left out there.

const kept = new Map();  // path -> {etag, answer}

// The answer, and the very same object as before if it has not changed. Fails with an Error whose
// message is for people.
export async function get(path, parameters = {}) {
  const url = `/api/v1/${path}?${new URLSearchParams(parameters)}`;
  const response = await fetch(url, {cache: 'no-cache', signal: AbortSignal.timeout(8000)}).catch(() => {
    throw new Error('the coordinator does not answer');
  });
  const etag = response.headers.get('ETag');
  const before = kept.get(path);
  if (etag && before?.etag === etag && before.url === url) return before.answer;
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw Object.assign(new Error(answer.message ?? `HTTP ${response.status}`), {http: response.status});
  }
  kept.set(path, {etag, url, answer});
  return answer;
}

const prefixes = new RegExp('^(WORKER_STATE|DEPLOYMENT_STATE|REVISION_STATE|DEVICE_KIND|PHASE|' +
    'DISPATCH_MODE|DISPATCH_DTYPE|QUANT_SCHEME|SCALE_KIND|BINDING_CHOICE|EVENT_OBJECT|WORK_KIND)_');

// 'WORKER_STATE_LIVE' -> 'live', as syctl says it; '' if it is not set.
export const word = (value) => (value ?? '').replace(prefixes, '').toLowerCase().replace('unspecified', '');

// 64-bit numbers are texts in protobuf's JSON.
export const number = (value) => Number(value ?? 0);
// '12.5s' -> 12.5
export const seconds = (value) => parseFloat(value ?? '0');

export function count(value) {
  return Math.round(value).toLocaleString('en-US');
}

export function rate(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M/s`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k/s`;
  return `${value >= 10 ? Math.round(value) : value.toFixed(1)}/s`;
}

export function bytes(value) {
  if (!value) return '';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    ++at;
  }
  return `${value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export function age(s) {
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}

// The time of day, and the day unless it is today.
export function clock(time) {
  const at = new Date(time);
  const today = at.toDateString() === new Date().toDateString();
  const day = today ? '' : `${at.toLocaleDateString('en-US', {month: 'short', day: 'numeric'})} `;
  return day + at.toLocaleTimeString('en-GB');
}

// [0, 1, 2, 5] -> '0-2, 5'
export function ranges(numbers) {
  const parts = [];
  for (let i = 0; i < numbers.length;) {
    let j = i;
    while (j + 1 < numbers.length && numbers[j + 1] === numbers[j] + 1) ++j;
    parts.push(i === j ? `${numbers[i]}` : `${numbers[i]}-${numbers[j]}`);
    i = j + 1;
  }
  return parts.join(', ');
}
