// Simulated processes and the streams between them.
//
// A stream behaves as gRPC's: ordered and reliable until it breaks; then each side that lives is
// told, sooner or later, and whatever was on its way may be lost. A cut between two processes holds
// everything back until it heals, as TCP does. A paused process hears nothing and runs nothing; a
// crashed one is told nothing any more, and its peers learn of it at once or, when its machine went
// with it, much later.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/rng.h"
#include "tests/sim/scheduler.h"

namespace switchyard::sim {

using NodeId = int;

struct Node {
  std::string name;
  bool alive = false;
  std::uint64_t life = 0;  // grows with each start
  TimePoint paused_until{};
};

class Network;

// How a stream ends that was not closed by its other side.
absl::Status Broken();

// One stream between two processes. Sides: 0 dialled, 1 was dialled.
class Wire {
 public:
  // To be set by each side before it can hear anything.
  std::function<void(const absl::Status&)> on_down[2];

  // Runs `deliver` at the other side, after what was sent before. Nothing happens once this side
  // has closed or the stream is broken.
  void Send(int from, std::function<void()> deliver);
  // The other side is told, after what was sent before; this side is not.
  void Close(int from, const absl::Status& why);
  [[nodiscard]] bool open(int side) const { return !ended_[side]; }
  [[nodiscard]] NodeId node(int side) const { return nodes_[side]; }

 private:
  friend class Network;
  struct Item {
    TimePoint ready_at;
    std::function<void()> deliver;
    std::optional<absl::Status> end;  // the last of all
  };
  struct Direction {
    std::deque<Item> items;
    bool pumping = false;
  };
  Network* network_ = nullptr;
  std::weak_ptr<Wire> self_;
  NodeId nodes_[2] = {0, 0};
  std::uint64_t lives_[2] = {0, 0};
  bool ended_[2] = {false, false};  // that side closed, or was told of the end
  Direction to_[2];                 // what is on its way to that side
};

struct Delays {
  Duration least = std::chrono::microseconds(100);
  Duration most = std::chrono::milliseconds(2);
};

class Network {
 public:
  Network(Scheduler* scheduler, Rng* rng) : scheduler_(scheduler), rng_(rng) {}

  NodeId Add(const std::string& name);
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] int count() const { return static_cast<int>(nodes_.size()); }
  void Start(NodeId id);
  // `silent`: its machine went with it, nobody is told for a while.
  void Crash(NodeId id, bool silent);
  void Pause(NodeId id, Duration for_how_long);
  void Resume(NodeId id);
  void Cut(NodeId a, NodeId b) { cuts_.insert(std::minmax(a, b)); }
  void HealAll() { cuts_.clear(); }
  // Breaks one open stream of the node, if it has any.
  void BreakOne(NodeId id);

  // A stream whose other side is told by `accept(link)` there; down at once when nobody lives
  // there.
  std::shared_ptr<Wire> Dial(NodeId from, NodeId to,
                             std::function<void(std::shared_ptr<Wire>)> accept);
  // Runs `what` on the node unless it has ended by then; later when it is paused.
  void AtNode(NodeId id, Duration delay, std::function<void()> what);

  Delays delays;

 private:
  friend class Wire;
  [[nodiscard]] Duration Delay();
  void Enqueue(const std::shared_ptr<Wire>& link, int to, Duration delay,
               std::function<void()> deliver);
  void EnqueueEnd(const std::shared_ptr<Wire>& link, int to, Duration delay, absl::Status why);
  void Enqueue(const std::shared_ptr<Wire>& link, int to, Wire::Item item);
  void Pump(const std::shared_ptr<Wire>& link, int to);
  void Break(const std::shared_ptr<Wire>& link, Duration told_after);
  [[nodiscard]] bool Held(const Wire& link, int to) const;

  Scheduler* scheduler_;
  Rng* rng_;
  std::vector<Node> nodes_;
  std::vector<std::weak_ptr<Wire>> links_;
  std::set<std::pair<NodeId, NodeId>> cuts_;
};

}  // namespace switchyard::sim
