// A worker's part in collective sessions: forms groups with sources and other workers
// (core/group_messages.h), and makes the steps of their logs (log_follower.h).
//
//   Join -> JoinAnswer ... Announce -> SourceKeys ... TakeKeys -> ready ... Bind, Release ... Leave
//
// A group ends as a whole: when a source leaves, when a step of it fails, when this worker stops.
// Its sources hear why; steps that have begun end by their own waits.
//
// A worker follows one log at a time: with two, steps of two groups could begin in another order
// here than elsewhere. The worker of rank 0 chooses the log of a group: that which one of its
// workers follows for another group already, else one of its own. So a group of a new plan can form
// beside that of the plan before, whichever worker is the first.
//
// A source in the worker's process shares the worker's rank: it joins like any other, without a key
// of its own, and then makes the steps through RankOf.
//
// Thread-safe. Join and TakeKeys take milliseconds, for memory of the device; sinks are called with
// the lock held, so that none is called after Leave has returned, and return quickly.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/group_messages.h"
#include "core/rng.h"
#include "core/session_messages.h"
#include "worker/collective/expert/group_counts.h"
#include "worker/collective/expert/log_follower.h"
#include "worker/collective/source_rank.h"
#include "worker/device/device_backend.h"
#include "worker/expert/direct_experts.h"

namespace switchyard {

// A source's stream to this worker.
class GroupSink {
 public:
  // From the worker of rank 0, once.
  virtual void OnSourceKeys(const SourceKeys& keys) = 0;
  // The group is ready, as far as this worker is concerned; once, after TakeKeys.
  virtual void OnReady() = 0;
  // The last call.
  virtual void OnGroupEnded(const absl::Status& why) = 0;

 protected:
  ~GroupSink() = default;
};

class GroupService final : public RankHost, public std::enable_shared_from_this<GroupService> {
 public:
  struct Options {
    std::string worker_id;
    std::shared_ptr<DeviceBackend> device;
    DirectExperts* experts = nullptr;  // holds the epochs that groups bind
    Rng* rng = nullptr;                // these two are there until Stop
    std::string ring_dir;              // of sockets
    Duration spin = std::chrono::microseconds(200);
    std::size_t groups_max = 16;
  };
  using MemberId = std::uint64_t;  // a source in a group

  // Shared, because ranks of sources hold it.
  static std::shared_ptr<GroupService> Make(Options options) {
    return std::shared_ptr<GroupService>(new GroupService(std::move(options)));
  }
  ~GroupService() override;
  GroupService(const GroupService&) = delete;
  GroupService& operator=(const GroupService&) = delete;

  // Errors: kFailedPrecondition (STALE_EPOCH) as DirectExperts::Bind; those of CheckGrant,
  // ResolveCollective and MakeExchange; kInvalidArgument (BAD_CONFIG) for a source that
  // means another group than those before it; kResourceExhausted (TOO_MANY_SESSIONS).
  absl::StatusOr<std::pair<MemberId, JoinAnswer>> Join(const JoinRequest& request, GroupSink* sink);
  // After the answer of Join is on its way. On the first worker it sends the keys of all sources
  // once the last of them has joined. Errors: those of SharedLog's; kFailedPrecondition
  // (UNSUPPORTED) if its workers follow several logs; kResourceExhausted (TOO_MANY_SESSIONS).
  absl::Status Announce(MemberId member);
  // OnReady follows, on the first worker once all sources have given their keys: none of them makes
  // a step before all look at the log. Errors: those of Exchange::Join and SharedLog's;
  // kUnavailable (NOT_READY) if the worker has begun to follow another log meanwhile.
  absl::Status TakeKeys(MemberId member, const GroupKeys& keys);
  // As ExpertService's.
  absl::Status Bind(MemberId member, const BindRequest& request);
  void Release(MemberId member, const ReleaseRequest& request);
  void Leave(MemberId member);

  [[nodiscard]] const std::string& worker_id() const override { return options_.worker_id; }
  absl::StatusOr<std::shared_ptr<SourceRank>> RankOf(const GroupId& id, Epoch epoch,
                                                     std::function<void()> wake) override;

  // Ends all groups with kUnavailable (WORKER_LOST).
  void Stop();

  [[nodiscard]] std::size_t groups_open() const;
  // Waits for nothing.
  [[nodiscard]] const GroupCounts& counts() const { return counts_; }

 private:
  class Group;
  struct Member {
    std::shared_ptr<Group> group;
    std::size_t source = 0;
  };
  // A group of one id is formed anew on another epoch.
  using GroupKey = std::pair<GroupId, Epoch>;

  explicit GroupService(Options options);

  // A follower that ends, without the lock, for which its thread may wait.
  struct Former {
    std::shared_ptr<LogFollower> follower;
    ~Former() {
      if (follower != nullptr) follower->Stop();
    }
  };

  // Binds only what the coordinator has granted: a stranger may know the id of a session.
  absl::StatusOr<std::shared_ptr<const EpochRuntime>> BindFirst(const JoinRequest& request);
  // Ends a binding of a session unless one of its groups has it.
  void Unbind(SessionId session, Epoch epoch) SY_REQUIRES(mutex_);
  absl::StatusOr<std::shared_ptr<Group>> FindOrMake(const JoinRequest& request,
                                                    const EpochRuntime& runtime)
      SY_REQUIRES(mutex_);
  // Some group here makes its steps in the order of the follower's log.
  [[nodiscard]] bool FollowsForGroups() const SY_REQUIRES(mutex_);
  // Follows the log of a group that this worker is the first of. `logs`: those of its other
  // workers.
  absl::Status ChooseLog(const std::vector<std::string>& logs, Former* former) SY_REQUIRES(mutex_);
  absl::Status Follow(const std::string& log_key, Former* former) SY_REQUIRES(mutex_);
  absl::Status Start(std::unique_ptr<SharedLog> log) SY_REQUIRES(mutex_);
  absl::Status Form(const std::shared_ptr<Group>& group, const GroupKeys& keys, Former* former)
      SY_REQUIRES(mutex_);
  absl::StatusOr<std::shared_ptr<Group>> Find(MemberId member) SY_REQUIRES(mutex_);
  void OnFailed(const Group* group, const absl::Status& why);
  void End(const std::shared_ptr<Group>& group, const absl::Status& why) SY_REQUIRES(mutex_);

  const Options options_;
  GroupCounts counts_;  // groups and followers, below, write to it
  mutable Mutex mutex_;
  std::map<GroupKey, std::shared_ptr<Group>> groups_ SY_GUARDED_BY(mutex_);
  std::map<MemberId, Member> members_ SY_GUARDED_BY(mutex_);
  MemberId last_member_ SY_GUARDED_BY(mutex_) = 0;
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  std::shared_ptr<LogFollower> follower_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
