// A source's own rank in a group: its steps go on a stream of the source, which reads the log by
// itself. Where the group has several sources, a thread makes this rank's part, without tokens, in
// steps of others that no caller has joined for a while.
//
// Thread-safe. The destructor does not wait for steps that have begun.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "worker/collective/group_codecs.h"
#include "worker/collective/shared_log.h"
#include "worker/collective/source_rank.h"

namespace switchyard {

// A source's stream. Its groups use it one after the other, so that the kernels of one never wait
// for compute units that those of the next one hold.
struct SourceLane {
  Mutex mutex;  // held while somebody enqueues
  std::unique_ptr<Stream> stream;
};

class OwnRank final : public SourceRank {
 public:
  struct Options {
    std::shared_ptr<SourceLane> lane;
    DeviceBackend* device = nullptr;  // of the lane; outlives the rank
    std::unique_ptr<Exchange> exchange;
    GroupCodecs codecs;
    std::unique_ptr<SharedLog> log;
    std::uint32_t group = 0;
    bool alone = true;  // no other source appends steps of the group
    // How long this source may be behind another one's step before it takes part without tokens.
    Duration idle_after{};
    // The group makes no more steps: its ranks do not mean the same. With the lane's mutex held.
    std::function<void(const absl::Status& why)> fail;
  };
  // Its first step is the first one that is appended from now on.
  explicit OwnRank(Options options);
  ~OwnRank() override;
  OwnRank(const OwnRank&) = delete;
  OwnRank& operator=(const OwnRank&) = delete;

  absl::Status Use(absl::FunctionRef<absl::Status(RankTurn&)> work) override;
  void Retire() override;
  [[nodiscard]] DeviceBackend& device() const override { return *options_.device; }
  [[nodiscard]] Exchange& exchange() override { return *options_.exchange; }
  [[nodiscard]] std::uint32_t group() const override { return options_.group; }
  [[nodiscard]] std::uint64_t steps() const override { return steps_.load(); }

 private:
  class Turn;
  [[nodiscard]] StepLog& log() const { return options_.log->log(); }
  absl::StatusOr<LoggedStep> Claim(const LoggedStep& wanted, std::int32_t tokens, TimePoint until)
      SY_REQUIRES(mutex_);
  absl::StatusOr<std::uint64_t> Make(const LoggedStep& step, ExchangeStep part) SY_REQUIRES(mutex_);
  absl::Status WaitForRoom(TimePoint until) SY_REQUIRES(mutex_);
  absl::Status Fail(absl::Status why) SY_REQUIRES(mutex_);
  bool SkipOthers() SY_REQUIRES(mutex_);
  void LookBehind(std::uint64_t next);
  void RunIdle();

  const Options options_;
  Mutex& mutex_;  // the lane's
  // Number in the log that this rank looks at next.
  std::uint64_t next_ SY_GUARDED_BY(mutex_) = 0;
  bool retired_ SY_GUARDED_BY(mutex_) = false;
  std::atomic<std::uint64_t> steps_{0};
  CondVar changed_;
  std::thread idle_;
};

}  // namespace switchyard
