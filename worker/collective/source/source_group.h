// A source's side of forming one group on one plan, and its streams to the workers while the group
// lasts.
//
// Forming takes memory of the device and waits for all ranks, so it has a thread of its own; `wake`
// says that something has changed. Thread-safe. Destroying it ends the group for all of its ranks;
// no step of it may run then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/resolve/collective_group.h"
#include "core/session_messages.h"
#include "worker/collective/source/own_rank.h"
#include "worker/collective/source_rank.h"
#include "worker/device/device_backend.h"
#include "worker/source/session_channel.h"

namespace switchyard {

class SourceGroup {
 public:
  struct Options {
    SessionChannel* channel = nullptr;  // these two outlive the group
    DeviceBackend* device = nullptr;    // where the source's tensors lie
    std::shared_ptr<SourceLane> lane;   // of that device, for a rank of its own
    std::shared_ptr<RankHost> host;     // the worker of this process; null: there is none
    std::string ring_dir;               // of sockets
    SessionGrant grant;                 // with the plan to form the group on
    CollectiveGroup facts;              // of that plan
    std::function<void()> wake;         // from any thread
    Duration timeout = std::chrono::seconds(10);
    Duration idle_after{};  // as OwnRank
  };
  // Begins at once.
  explicit SourceGroup(Options options);
  ~SourceGroup();
  SourceGroup(const SourceGroup&) = delete;
  SourceGroup& operator=(const SourceGroup&) = delete;

  enum class State : std::uint8_t { kForming, kReady, kEnded };
  [[nodiscard]] State state() const;
  // Why it has ended: what a worker refused or lost; kUnavailable for all that may be mended.
  [[nodiscard]] absl::Status why() const;

  // It makes this source's steps. REQUIRES: the group has been ready.
  [[nodiscard]] SourceRank& rank() { return *rank_; }
  [[nodiscard]] const Options& options() const { return options_; }

  // The workers bind one more epoch, of a plan with the same group.
  void Bind(const BindRequest& request);
  // All workers have bound it. An error: one refused.
  [[nodiscard]] absl::StatusOr<bool> IsBound(Epoch epoch) const;
  void Release(Epoch epoch);
  // Ends it at this source, and with its streams, once it is destroyed, everywhere: its steps that
  // run are no results. `why` is an error. Nothing happens if it has ended.
  void Abandon(const absl::Status& why);

 private:
  class Worker;

  void Form();
  absl::Status TryForm();
  [[nodiscard]] absl::Status CheckHost() const;
  [[nodiscard]] JoinRequest MakeRequest() const;
  absl::Status JoinWorkers(JoinRequest request, TimePoint until);
  // The rank, once the keys of all are known.
  absl::Status MakeOwnRank(std::unique_ptr<Exchange> exchange, const GroupKeys& keys);
  absl::Status ShareRank();
  [[nodiscard]] GroupKeys KeysOfAll() const;
  // Waits until `there` holds of every worker.
  template <typename There>
  absl::Status WaitForAll(TimePoint until, absl::string_view what, There there);
  void Changed();
  // None of its steps that run waits for a rank any more; `first` is the one that was missed.
  void LoseAll(std::int32_t first) SY_REQUIRES(mutex_);

  const Options options_;
  // Set by the forming thread before has_rank_ and the state kReady.
  std::shared_ptr<SourceRank> rank_;  // nobody else keeps it

  mutable Mutex mutex_;
  CondVar changed_;
  State state_ SY_GUARDED_BY(mutex_) = State::kForming;
  absl::Status why_ SY_GUARDED_BY(mutex_);
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  bool has_rank_ SY_GUARDED_BY(mutex_) = false;
  std::optional<SourceKeys> source_keys_ SY_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Worker>> workers_;  // constant; their contents under mutex_

  std::thread thread_;
};

// The error of steps whose group has ended for `why`. Another attempt may succeed, whatever it was.
absl::Status GroupEnded(const absl::Status& why);
// The first step of the group that is no result, as Exchange::Fault says.
std::uint64_t StepOfFault(const absl::Status& fault);

}  // namespace switchyard
