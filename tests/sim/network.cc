#include "tests/sim/network.h"

#include <algorithm>
#include <chrono>

#include "core/base/error.h"

namespace switchyard::sim {

using std::chrono::milliseconds;

absl::Status Broken() {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kTransport, "the stream broke");
}

NodeId Network::Add(const std::string& name) {
  nodes_.push_back({name, false, 0, {}});
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Network::Start(NodeId id) {
  Node& node = nodes_[static_cast<std::size_t>(id)];
  node.alive = true;
  ++node.life;
  node.paused_until = {};
}

void Network::Crash(NodeId id, bool silent) {
  Node& node = nodes_[static_cast<std::size_t>(id)];
  node.alive = false;
  ++node.life;
  for (const std::weak_ptr<Wire>& weak : links_) {
    const std::shared_ptr<Wire> link = weak.lock();
    if (link == nullptr || (link->node(0) != id && link->node(1) != id)) continue;
    const Duration told_after = silent ? Duration(milliseconds(1000 + rng_->Below(4000))) : Delay();
    Break(link, told_after);
  }
}

void Network::Pause(NodeId id, Duration for_how_long) {
  TimePoint& until = nodes_[static_cast<std::size_t>(id)].paused_until;
  until = std::max(until, scheduler_->now() + for_how_long);
}

void Network::Resume(NodeId id) { nodes_[static_cast<std::size_t>(id)].paused_until = {}; }

void Network::BreakOne(NodeId id) {
  std::vector<std::shared_ptr<Wire>> open;
  std::erase_if(links_, [](const std::weak_ptr<Wire>& weak) { return weak.expired(); });
  for (const std::weak_ptr<Wire>& weak : links_) {
    std::shared_ptr<Wire> link = weak.lock();
    const bool mine = link->node(0) == id || link->node(1) == id;
    if (mine && link->open(0) && link->open(1)) open.push_back(std::move(link));
  }
  if (!open.empty()) Break(open[rng_->Below(open.size())], Delay());
}

std::shared_ptr<Wire> Network::Dial(NodeId from, NodeId to,
                                    std::function<void(std::shared_ptr<Wire>)> accept) {
  auto link = std::make_shared<Wire>();
  link->network_ = this;
  link->self_ = link;
  link->nodes_[0] = from;
  link->nodes_[1] = to;
  link->lives_[0] = node(from).life;
  link->lives_[1] = node(to).life;
  if (links_.size() > 256) {
    std::erase_if(links_, [](const std::weak_ptr<Wire>& weak) { return weak.expired(); });
  }
  links_.push_back(link);
  if (node(to).alive) {
    // The stream is kept by what is on its way and by both sides.
    Enqueue(link, 1, Delay(), [accept = std::move(accept), link] { accept(link); });
  } else {
    link->ended_[1] = true;
    EnqueueEnd(link, 0, Delay(), Broken());
  }
  return link;
}

void Network::AtNode(NodeId id, Duration delay, std::function<void()> what) {
  const std::uint64_t life = node(id).life;
  scheduler_->After(delay, [this, id, life, what = std::move(what)]() mutable {
    const Node& there = node(id);
    if (!there.alive || there.life != life) return;
    if (there.paused_until > scheduler_->now()) {
      // It may go on earlier than it was to.
      const Duration left = there.paused_until - scheduler_->now();
      AtNode(id, std::min<Duration>(left, milliseconds(50)), std::move(what));
    } else {
      what();
    }
  });
}

Duration Network::Delay() {
  const auto span = static_cast<std::uint64_t>((delays.most - delays.least).count()) + 1;
  return delays.least + Duration(static_cast<Duration::rep>(rng_->Below(span)));
}

void Network::Enqueue(const std::shared_ptr<Wire>& link, int to, Duration delay,
                      std::function<void()> deliver) {
  Enqueue(link, to, Wire::Item{scheduler_->now() + delay, std::move(deliver), std::nullopt});
}

void Network::EnqueueEnd(const std::shared_ptr<Wire>& link, int to, Duration delay,
                         absl::Status why) {
  Enqueue(link, to, Wire::Item{scheduler_->now() + delay, nullptr, std::move(why)});
}

void Network::Enqueue(const std::shared_ptr<Wire>& link, int to, Wire::Item item) {
  Wire::Direction& direction = link->to_[to];
  if (!direction.items.empty()) {
    item.ready_at = std::max(item.ready_at, direction.items.back().ready_at);
  }
  const TimePoint ready_at = item.ready_at;
  direction.items.push_back(std::move(item));
  if (direction.pumping) return;
  direction.pumping = true;
  scheduler_->At(ready_at, [this, link, to] { Pump(link, to); });
}

bool Network::Held(const Wire& link, int to) const {
  const auto pair = std::minmax(link.nodes_[0], link.nodes_[1]);
  return cuts_.contains(pair) || node(link.nodes_[to]).paused_until > scheduler_->now();
}

void Network::Pump(const std::shared_ptr<Wire>& link, int to) {
  Wire::Direction& direction = link->to_[to];
  while (!direction.items.empty()) {
    const Node& receiver = node(link->nodes_[to]);
    if (!receiver.alive || receiver.life != link->lives_[to] || link->ended_[to]) {
      direction.items.clear();
      break;
    }
    TimePoint next = direction.items.front().ready_at;
    if (Held(*link, to)) next = std::max(next, scheduler_->now() + milliseconds(10));
    if (next > scheduler_->now()) {
      scheduler_->At(next, [this, link, to] { Pump(link, to); });
      return;
    }
    const Wire::Item item = std::move(direction.items.front());
    direction.items.pop_front();
    if (item.end) {
      link->ended_[to] = true;
      if (const auto told = std::exchange(link->on_down[to], nullptr)) told(*item.end);
    } else {
      item.deliver();
    }
  }
  direction.pumping = false;
}

void Network::Break(const std::shared_ptr<Wire>& link, Duration told_after) {
  for (const int side : {0, 1}) {
    // What was on its way may be lost, from some point on.
    auto& items = link->to_[side].items;
    items.resize(rng_->Below(items.size() + 1));
    if (!link->ended_[side]) EnqueueEnd(link, side, told_after, Broken());
  }
}

void Wire::Send(int from, std::function<void()> deliver) {
  if (ended_[from]) return;
  network_->Enqueue(self_.lock(), 1 - from, network_->Delay(), std::move(deliver));
}

void Wire::Close(int from, const absl::Status& why) {
  if (ended_[from]) return;
  ended_[from] = true;
  on_down[from] = nullptr;
  network_->EnqueueEnd(self_.lock(), 1 - from, network_->Delay(), why);
}

}  // namespace switchyard::sim
