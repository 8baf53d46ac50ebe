#include "coordinator/placement/sticky.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

constexpr std::int32_t kNobody = -1;

// Experts that fit into the worker's memory.
std::int64_t CapacityOf(const PlacementWorker& worker, std::int64_t expert_bytes) {
  if (worker.free_bytes == 0 || expert_bytes <= 0) return std::numeric_limits<std::int64_t>::max();
  return worker.free_bytes / expert_bytes;
}

// How many experts of all layers together each worker takes.
struct Shares {
  std::vector<std::int64_t> experts;
  std::int64_t most = 0;
  // Its share is `most` or one less, and may be either.
  std::vector<bool> even;
};

absl::StatusOr<Shares> SharesOf(const PlacementRequest& request) {
  const std::size_t workers = request.workers.size();
  const auto layers = static_cast<std::int64_t>(request.layers.size());
  std::vector<std::int64_t> capacity(workers);
  for (std::size_t w = 0; w < workers; ++w) {
    // No worker holds an expert twice, so that more room than this is of no use.
    capacity[w] =
        std::min(CapacityOf(request.workers[w], request.expert_bytes), layers * request.experts);
  }
  // The smallest memories first: what does not fit there is added to the shares of all others. Of
  // equal ones, those that hold less: what does not divide evenly goes to those that hold more.
  std::vector<std::size_t> order(workers);
  std::iota(order.begin(), order.end(), 0U);
  const auto rank = [&](std::size_t w) {
    return std::make_tuple(capacity[w], request.workers[w].holds.size(), workers - w);
  };
  std::sort(order.begin(), order.end(),
            [&rank](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  std::vector<std::int64_t> shares(workers);
  std::int64_t most = 0;
  std::int64_t left = layers * request.experts;
  for (std::size_t i = 0; i < workers; ++i) {
    const std::size_t w = order[i];
    shares[w] = std::min(capacity[w], left / static_cast<std::int64_t>(workers - i));
    left -= shares[w];
    most = std::max(most, shares[w]);
    if (shares[w] == 0) return NoRoom(request.workers[w], request.expert_bytes);
  }
  // The last one has the largest memory: what it cannot take fits nowhere.
  if (left > 0) {
    const std::size_t w = order.back();
    return NoRoom(request.workers[w], (shares[w] + left) * request.expert_bytes);
  }
  std::vector<bool> even(workers);
  for (std::size_t w = 0; w < workers; ++w) even[w] = shares[w] >= most - 1 && capacity[w] >= most;
  return Shares{std::move(shares), most, std::move(even)};
}

// [worker][layer]: a number of experts
using Counts = std::vector<std::vector<std::int32_t>>;

// A set of layers, by index.
class Layers {
 public:
  explicit Layers(std::size_t most) : words_((most + 63) / 64) {}
  [[nodiscard]] bool Has(std::size_t layer) const {
    return (words_[layer / 64] >> (layer % 64)) & 1;
  }
  void Add(std::size_t layer) { words_[layer / 64] |= std::uint64_t{1} << (layer % 64); }
  void Remove(std::size_t layer) { words_[layer / 64] &= ~(std::uint64_t{1} << (layer % 64)); }
  // Adds the layers that are in `those` (or, unless `in`, are not) and not in `except`.
  void AddThose(const Layers& those, bool in, const Layers& except) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] |= (in ? those.words_[i] : ~those.words_[i]) & ~except.words_[i];
    }
  }

 private:
  std::vector<std::uint64_t> words_;
};

// One set for each worker.
using Marks = std::vector<Layers>;

// Chooses for each worker `times[w]` of the layers, and equally many workers for each layer;
// preferably layers in `wants`.
//
// Layer by layer: first the workers that need every layer that is left; then those that want this
// one, and those that want none and are due, for each in other layers; then those that still miss
// most. Such a choice always works out (Gale-Ryser): all layers need equally many, and no worker is
// left with more than the layers that follow.
Marks ChooseLayers(const std::vector<std::int64_t>& times, const Marks& wants, std::size_t layers) {
  const std::size_t workers = times.size();
  const auto count = static_cast<std::int64_t>(layers);
  std::vector<std::int64_t> todo = times;
  std::vector<std::int64_t> wanted(workers, 0);
  for (std::size_t w = 0; w < workers; ++w) {
    for (std::size_t l = 0; l < layers; ++l) wanted[w] += wants[w].Has(l) ? 1 : 0;
  }
  std::vector<std::int64_t> wanted_later = wanted;
  const std::int64_t in_each_layer =
      std::accumulate(times.begin(), times.end(), std::int64_t{0}) / count;
  Marks chosen(workers, Layers(layers + 1));
  std::vector<std::size_t> order(workers);
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t l = 0; l < layers; ++l) {
    const auto done_layers = static_cast<std::int64_t>(l) + 1;
    // Spread evenly, and differently for each worker: workers that later give up one layer each can
    // then give up different ones.
    const auto is_due = [&](std::size_t w) {
      const std::int64_t phase = static_cast<std::int64_t>(w * 40503 % 65536);  // golden ratio
      return wanted[w] == 0 && (times[w] - todo[w] + 1) * count * 65536 <=
                                   times[w] * done_layers * 65536 + phase * count;
    };
    const auto rank = [&](std::size_t w) {
      return std::make_tuple(todo[w] <= count - done_layers, todo[w] == 0,
                             !wants[w].Has(l) && !is_due(w), wanted_later[w] - todo[w], w);
    };
    std::sort(order.begin(), order.end(),
              [&rank](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
    for (std::size_t w = 0; w < workers; ++w) wanted_later[w] -= wants[w].Has(l) ? 1 : 0;
    for (std::int64_t i = 0; i < in_each_layer; ++i) {
      const std::size_t w = order[static_cast<std::size_t>(i)];
      chosen[w].Add(l);
      --todo[w];
    }
  }
  return chosen;
}

// A move: a worker gives up one layer and takes another. Worth 1 if it wants only the new one, -1
// if it wants only the old one, else 0.
constexpr std::array kWorths = {1, 0, -1};

// Which moves exist: [worth, by the index in kWorths][from], the layers to which.
using Moves = std::array<std::vector<Layers>, 3>;

Moves MovesOf(const Marks& wants, const Marks& chosen, const Marks& barred, std::size_t layers) {
  Moves moves;
  moves.fill(std::vector<Layers>(layers, Layers(layers)));
  for (std::size_t w = 0; w < chosen.size(); ++w) {
    Layers blocked = chosen[w];
    blocked.AddThose(barred[w], true, chosen[w]);
    for (std::size_t from = 0; from < layers; ++from) {
      if (!chosen[w].Has(from)) continue;
      const bool wants_from = wants[w].Has(from);
      moves[wants_from ? 1 : 0][from].AddThose(wants[w], true, blocked);
      moves[wants_from ? 2 : 1][from].AddThose(wants[w], false, blocked);
    }
  }
  return moves;
}

// The largest worth of a move, by its index in kWorths; nullopt: nobody can.
std::optional<std::size_t> BestOf(const Moves& moves, std::size_t from, std::size_t to) {
  for (std::size_t i = 0; i < moves.size(); ++i) {
    if (moves[i][from].Has(to)) return i;
  }
  return std::nullopt;
}

// The circle in which `before` runs, backwards; empty: it runs in none. before[i] == before.size():
// i has none before it.
std::vector<std::size_t> CircleIn(const std::vector<std::size_t>& before) {
  const std::size_t end = before.size();
  std::vector<std::size_t> seen_from(end, end);
  for (std::size_t start = 0; start < end; ++start) {
    std::size_t at = start;
    while (at != end && seen_from[at] == end) {
      seen_from[at] = start;
      at = before[at];
    }
    if (at == end || seen_from[at] != start) continue;  // It joins a path that was seen before.
    std::vector<std::size_t> circle;
    for (std::size_t i = at; circle.empty() || i != at; i = before[i]) circle.push_back(i);
    return circle;
  }
  return {};
}

// A circle of layers whose moves are worth more than 0 in sum; empty: there is none. Bellman-Ford:
// sums that can still grow after as many rounds as there are layers run in a circle, and the
// circle mostly shows after a few.
std::vector<std::size_t> FindCircle(const Moves& moves) {
  const std::size_t layers = moves[0].size();
  std::vector<int> best(layers, 0);
  std::vector<std::size_t> before(layers, layers);
  for (std::size_t round = 0; round <= layers; ++round) {
    bool grown = false;
    for (std::size_t from = 0; from < layers; ++from) {
      for (std::size_t to = 0; to < layers; ++to) {
        const auto move = BestOf(moves, from, to);
        if (!move || best[from] + kWorths.at(*move) <= best[to]) continue;
        best[to] = best[from] + kWorths.at(*move);
        before[to] = from;
        grown = true;
      }
    }
    if (!grown) return {};
    std::vector<std::size_t> circle = CircleIn(before);
    std::reverse(circle.begin(), circle.end());
    if (!circle.empty()) return circle;
  }
  return {};
}

// Makes one move of that worth.
void MakeMove(std::size_t from, std::size_t to, int worth, const Marks& wants, const Marks& barred,
              Marks* chosen) {
  for (std::size_t w = 0; w < chosen->size(); ++w) {
    Layers& mine = (*chosen)[w];
    const int its_worth = (wants[w].Has(to) ? 1 : 0) - (wants[w].Has(from) ? 1 : 0);
    if (!mine.Has(from) || mine.Has(to) || barred[w].Has(to) || its_worth != worth) continue;
    mine.Remove(from);
    mine.Add(to);
    return;
  }
}

// ChooseLayers does not look ahead. While moves along a circle of layers, each of which gets and
// gives one worker, serve more wants, they are made; then no choice serves more. (Circles of
// residual graphs are what minimum-cost flow algorithms cancel: Klein 1967.) A worker never takes a
// layer in `barred`.
void ExchangeLayers(const Marks& wants, const Marks& barred, std::size_t layers, Marks* chosen) {
  while (true) {
    const Moves moves = MovesOf(wants, *chosen, barred, layers);
    const std::vector<std::size_t> circle = FindCircle(moves);
    if (circle.empty()) return;
    for (std::size_t i = 0; i < circle.size(); ++i) {
      const std::size_t from = circle[i];
      const std::size_t to = circle[(i + 1) % circle.size()];
      MakeMove(from, to, kWorths.at(BestOf(moves, from, to).value()), wants, barred, chosen);
    }
  }
}

// [worker][layer]: how many experts each worker takes: its share / layers, rounded down, or up
// where that keeps an expert in its place. Columns add up to the experts of a layer and rows to the
// shares; but which of the workers with even shares take one expert more, is chosen here: a further
// column, beyond the layers, has those that do not.
Counts TargetsOf(const Shares& shares, const Counts& held, std::size_t layers) {
  const std::size_t workers = shares.experts.size();
  const auto count = static_cast<std::int64_t>(layers);
  std::vector<std::int64_t> floors(workers);
  std::vector<std::int64_t> to_round_up(workers);
  Marks holds_more(workers, Layers(layers + 1));
  Marks barred = holds_more;
  for (std::size_t w = 0; w < workers; ++w) {
    floors[w] = (shares.even[w] ? shares.most - 1 : shares.experts[w]) / count;
    to_round_up[w] = shares.experts[w] - floors[w] * count;
    for (std::size_t l = 0; l < layers; ++l) {
      if (held[w][l] > floors[w]) holds_more[w].Add(l);
    }
    if (!shares.even[w]) barred[w].Add(layers);
  }
  Marks rounded_up = ChooseLayers(to_round_up, holds_more, layers);
  for (std::size_t w = 0; w < workers; ++w) {
    if (shares.even[w] && shares.experts[w] < shares.most) rounded_up[w].Add(layers);
  }
  ExchangeLayers(holds_more, barred, layers + 1, &rounded_up);
  Counts targets(workers, std::vector<std::int32_t>(layers));
  for (std::size_t w = 0; w < workers; ++w) {
    for (std::size_t l = 0; l < layers; ++l) {
      targets[w][l] = static_cast<std::int32_t>(floors[w]) + (rounded_up[w].Has(l) ? 1 : 0);
    }
  }
  return targets;
}

// Where the experts of all layers are, or were: [layer][expert], a worker or kNobody.
using Homes = std::vector<std::vector<std::int32_t>>;

Homes HomesOf(const PlacementRequest& request, std::vector<LayerExpert> PlacementWorker::*list) {
  Homes homes(request.layers.size(),
              std::vector<std::int32_t>(static_cast<std::size_t>(request.experts), kNobody));
  for (std::size_t w = 0; w < request.workers.size(); ++w) {
    for (const LayerExpert& held : request.workers[w].*list) {
      const auto layer = std::lower_bound(request.layers.begin(), request.layers.end(), held.layer);
      const bool exists = layer != request.layers.end() && *layer == held.layer &&
                          held.expert.value >= 0 && held.expert.value < request.experts;
      if (!exists) continue;  // The model was another one then.
      homes[static_cast<std::size_t>(layer - request.layers.begin())]
           [static_cast<std::size_t>(held.expert.value)] = static_cast<std::int32_t>(w);
    }
  }
  return homes;
}

Counts CountsOf(const Homes& homes, std::size_t workers) {
  Counts held(workers, std::vector<std::int32_t>(homes.size()));
  for (std::size_t l = 0; l < homes.size(); ++l) {
    for (const std::int32_t w : homes[l]) {
      if (w != kNobody) ++held[static_cast<std::size_t>(w)][l];
    }
  }
  return held;
}

// The worker of each expert of one layer. `room[w]`: how many worker w takes.
std::vector<std::int32_t> PlaceLayer(const std::vector<std::int32_t>& homes,
                                     const std::vector<std::int32_t>& former,
                                     std::vector<std::int32_t> room) {
  std::vector<std::int32_t> owners(homes.size(), kNobody);
  const auto give = [&](std::size_t expert, std::int32_t worker) {
    if (owners[expert] != kNobody || worker == kNobody) return;
    std::int32_t& left = room[static_cast<std::size_t>(worker)];
    if (left == 0) return;
    --left;
    owners[expert] = worker;
  };
  const auto wanted_back = [&](std::size_t e) {
    return former[e] != kNobody && former[e] != homes[e] &&
           room[static_cast<std::size_t>(former[e])] > 0;
  };
  // Where a worker keeps some of its experts and not all, those that a returning worker had go.
  for (std::size_t e = 0; e < homes.size(); ++e) {
    if (!wanted_back(e)) give(e, homes[e]);
  }
  for (std::size_t e = 0; e < homes.size(); ++e) give(e, homes[e]);
  for (std::size_t e = 0; e < homes.size(); ++e) give(e, former[e]);
  std::int32_t next = 0;
  for (std::size_t e = 0; e < homes.size(); ++e) {
    if (owners[e] != kNobody) continue;
    while (room[static_cast<std::size_t>(next)] == 0) ++next;
    give(e, next);
  }
  return owners;
}

LayerPlacement ToPlacement(LayerId layer, const std::vector<std::int32_t>& owners,
                           std::size_t workers) {
  LayerPlacement placement{layer, {}};
  placement.experts.reserve(owners.size());
  std::vector<std::int32_t> slots(workers, 0);
  for (std::size_t e = 0; e < owners.size(); ++e) {
    placement.experts.push_back({ExpertId{static_cast<std::int32_t>(e)}, WorkerOrdinal{owners[e]},
                                 SlotId{slots[static_cast<std::size_t>(owners[e])]++}});
  }
  std::sort(placement.experts.begin(), placement.experts.end(),
            [](const PhysicalExpert& a, const PhysicalExpert& b) {
              return std::make_pair(a.worker, a.slot) < std::make_pair(b.worker, b.slot);
            });
  return placement;
}

// Until the new plan serves, a worker holds what it had and what it gets.
absl::Status CheckRoomForBoth(const PlacementRequest& request, const Homes& homes,
                              const std::vector<std::vector<std::int32_t>>& owners) {
  std::vector<std::int64_t> experts(request.workers.size(), 0);
  for (std::size_t l = 0; l < homes.size(); ++l) {
    for (std::size_t e = 0; e < homes[l].size(); ++e) {
      if (homes[l][e] != kNobody) ++experts[static_cast<std::size_t>(homes[l][e])];
      if (owners[l][e] != homes[l][e]) ++experts[static_cast<std::size_t>(owners[l][e])];
    }
  }
  for (std::size_t w = 0; w < experts.size(); ++w) {
    const PlacementWorker& worker = request.workers[w];
    if (experts[w] > CapacityOf(worker, request.expert_bytes)) {
      return NoRoom(worker, experts[w] * request.expert_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<LayerPlacement>> StickyPlacement::Place(
    const PlacementRequest& request) const {
  const std::size_t workers = request.workers.size();
  const std::size_t layers = request.layers.size();
  const std::size_t all = layers * static_cast<std::size_t>(request.experts);
  if (workers == 0 || workers > all) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrFormat("%d workers for %d layers of %d experts; give 1 to %d workers",
                                     workers, layers, request.experts, all));
  }
  SY_ASSIGN_OR_RETURN(const Shares shares, SharesOf(request));
  const Homes homes = HomesOf(request, &PlacementWorker::holds);
  const Homes former = HomesOf(request, &PlacementWorker::held);
  const Counts targets = TargetsOf(shares, CountsOf(homes, workers), layers);
  std::vector<std::vector<std::int32_t>> owners;
  std::vector<LayerPlacement> placement;
  for (std::size_t l = 0; l < layers; ++l) {
    std::vector<std::int32_t> room;
    for (const std::vector<std::int32_t>& of_worker : targets) room.push_back(of_worker[l]);
    owners.push_back(PlaceLayer(homes[l], former[l], std::move(room)));
    placement.push_back(ToPlacement(request.layers[l], owners.back(), workers));
  }
  SY_RETURN_IF_ERROR(CheckRoomForBoth(request, homes, owners));
  return placement;
}

}  // namespace switchyard
