#include "coordinator/history/load_history.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace switchyard {
namespace {

// A sum that does not fit stays at the largest number, which stands out more than a small one.
void AddTo(std::uint32_t* sum, std::uint32_t rows) {
  *sum += std::min(rows, std::numeric_limits<std::uint32_t>::max() - *sum);
}

std::size_t BytesOf(const LoadSample& sample) {
  std::size_t bytes = sizeof(LoadSample) + sample.rows.size() * sizeof(std::uint32_t);
  for (const WorkerLoad& worker : sample.workers) {
    bytes += sizeof(WorkerLoad) + worker.id.size() + worker.rows.size() * sizeof(std::uint32_t) +
             worker.times.size() * sizeof(WorkTimes);
  }
  return bytes;
}

WorkerLoad& OfWorker(const std::string& id, std::size_t layers, LoadSample* sample) {
  for (WorkerLoad& worker : sample->workers) {
    if (worker.id == id) return worker;
  }
  sample->workers.push_back({.id = id, .rows = std::vector<std::uint32_t>(layers), .times = {}});
  return sample->workers.back();
}

}  // namespace

std::uint64_t LoadHistory::NumberAt(TimePoint now) const {
  return static_cast<std::uint64_t>((now - start_) / limits_.interval) + 1;
}

LoadSample& LoadHistory::Current(Ring* ring, TimePoint now, WallTime wall_time) {
  const std::uint64_t number = NumberAt(now);
  if (!ring->samples.empty() && ring->samples.back()->number == number) {
    return *ring->samples.back();
  }
  auto sample = std::make_shared<LoadSample>();
  sample->number = number;
  const Duration since = (now - start_) % limits_.interval;
  sample->begin = wall_time - std::chrono::duration_cast<std::chrono::milliseconds>(since);
  sample->duration = limits_.interval;
  sample->rows.resize(ring->shape.layers.size() * static_cast<std::size_t>(ring->shape.experts));
  ring->samples.push_back(std::move(sample));
  bytes_ += BytesOf(*ring->samples.back());
  return *ring->samples.back();
}

void LoadHistory::PopOldest(Ring* ring) {
  bytes_ -= BytesOf(*ring->samples.front());
  ring->samples.pop_front();
}

void LoadHistory::Bound(TimePoint now) {
  const std::uint64_t number = NumberAt(now);
  for (auto& [name, ring] : rings_) {
    while (!ring.samples.empty() && ring.samples.front()->number + limits_.intervals <= number) {
      PopOldest(&ring);
    }
  }
  while (bytes_ > limits_.bytes_max) {
    Ring* oldest = nullptr;
    for (auto& [name, ring] : rings_) {
      if (ring.samples.empty()) continue;
      if (oldest == nullptr || ring.samples.front()->number < oldest->samples.front()->number) {
        oldest = &ring;
      }
    }
    if (oldest == nullptr) return;
    PopOldest(oldest);
  }
}

LoadHistory::Ring& LoadHistory::RingOf(const std::string& deployment, const LoadShape& shape) {
  Ring& ring = rings_[deployment];
  if (ring.shape != shape) {
    while (!ring.samples.empty()) PopOldest(&ring);
    ring.shape = shape;
  }
  return ring;
}

void LoadHistory::Add(const LoadShape& shape, const std::string& worker, const LoadReport& report,
                      TimePoint now, WallTime wall_time) {
  Ring& ring = RingOf(report.deployment, shape);
  LoadSample& sample = Current(&ring, now, wall_time);
  bytes_ -= BytesOf(sample);
  WorkerLoad& by_layer = OfWorker(worker, shape.layers.size(), &sample);
  for (const ExpertLoad& one : report.experts) {
    const auto at = std::lower_bound(shape.layers.begin(), shape.layers.end(), one.layer);
    if (at == shape.layers.end() || *at != one.layer) continue;
    if (one.expert.value < 0 || one.expert.value >= shape.experts) continue;
    const auto layer = static_cast<std::size_t>(at - shape.layers.begin());
    const std::size_t cell = layer * static_cast<std::size_t>(shape.experts) +
                             static_cast<std::size_t>(one.expert.value);
    AddTo(&sample.rows[cell], one.rows);
    AddTo(&by_layer.rows[layer], one.rows);
  }
  bytes_ += BytesOf(sample);
  Bound(now);
}

void LoadHistory::AddTimes(const std::string& deployment, const LoadShape& shape,
                           const std::string& worker, const std::vector<WorkTimes>& times,
                           TimePoint now, WallTime wall_time) {
  LoadSample& sample = Current(&RingOf(deployment, shape), now, wall_time);
  bytes_ -= BytesOf(sample);
  WorkerLoad& of = OfWorker(worker, shape.layers.size(), &sample);
  for (const WorkTimes& one : times) AddSaturating(&of.times, one);
  bytes_ += BytesOf(sample);
  Bound(now);
}

void LoadHistory::KeepOnly(const std::function<bool(const std::string& deployment)>& keep) {
  for (auto at = rings_.begin(); at != rings_.end();) {
    if (keep(at->first)) {
      ++at;
      continue;
    }
    while (!at->second.samples.empty()) PopOldest(&at->second);
    at = rings_.erase(at);
  }
}

LoadView LoadHistory::View(const std::string& deployment, const LoadQuery& query,
                           TimePoint now) const {
  LoadView view;
  const auto at = rings_.find(deployment);
  if (at == rings_.end()) return view;
  view.shape = at->second.shape;
  const std::uint64_t number = NumberAt(now);
  for (const auto& sample : at->second.samples) {
    if (sample->number + limits_.intervals <= number) continue;
    if (view.first == 0) view.first = sample->number;
    view.last = sample->number;
    const bool wanted =
        sample->number > query.after && (query.before == 0 || sample->number < query.before);
    if (!wanted) continue;
    if (sample->number != number) {
      view.samples.push_back(sample);
      continue;
    }
    // A copy, since this one still changes. Reports are about the second before them, so that a
    // shorter time would make a rate of nothing.
    auto running = std::make_shared<LoadSample>(*sample);
    running->duration =
        std::max<Duration>((now - start_) % limits_.interval,
                           std::min<Duration>(std::chrono::seconds(1), limits_.interval));
    view.samples.push_back(std::move(running));
  }
  if (view.samples.size() > query.limit) {
    view.samples.erase(view.samples.begin(),
                       view.samples.end() - static_cast<std::ptrdiff_t>(query.limit));
  }
  return view;
}

}  // namespace switchyard
