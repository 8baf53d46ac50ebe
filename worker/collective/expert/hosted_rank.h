// The rank of a worker as a source of its process shares it: the source's tokens travel in the same
// step as the worker's experts, on the worker's stream, which the source enqueues itself.
//
// Thread-safe. It may outlive the worker's service of groups, and makes no steps then.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

#include "worker/collective/expert/log_follower.h"
#include "worker/collective/source_rank.h"

namespace switchyard {

class HostedRank final : public SourceRank {
 public:
  struct Options {
    std::shared_ptr<const void> service;    // that the group belongs to
    std::shared_ptr<DeviceBackend> device;  // the worker's
    std::shared_ptr<LogFollower> follower;
    std::shared_ptr<FollowedGroup> group;
    std::uint32_t number = 0;    // the group's
    std::function<void()> wake;  // as RankHost::RankOf
  };
  explicit HostedRank(Options options);
  ~HostedRank() override;
  HostedRank(const HostedRank&) = delete;
  HostedRank& operator=(const HostedRank&) = delete;

  absl::Status Use(absl::FunctionRef<absl::Status(RankTurn&)> work) override;
  void Retire() override;
  void KeepLaunches() override;
  [[nodiscard]] DeviceBackend& device() const override { return *options_.device; }
  [[nodiscard]] Exchange& exchange() override { return options_.group->exchange(); }
  [[nodiscard]] std::uint32_t group() const override { return options_.number; }
  [[nodiscard]] std::uint64_t steps() const override { return options_.group->steps_made.load(); }

 private:
  const Options options_;
  const std::uint64_t wake_;
  std::atomic<bool> retired_{false};
};

}  // namespace switchyard
