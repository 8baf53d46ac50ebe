// The bound on waits for messages. Whoever carries them waits on the device, for ever if need be; a
// thread looks at how far the rank's kernels have come, and gives the group up when messages do not
// arrive, or when a rank is known not to come.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "worker/device/cuda/exchange/exchange_rank.h"
#include "worker/device/cuda/messages/message_group.h"

namespace switchyard {

class MessageWatch {
 public:
  struct Options {
    MessageGroup* group = nullptr;           // outlives the watch
    cuda::ExchangeReport* report = nullptr;  // outlives the watch, and the kernels
    std::uint32_t others = 0;                // a bit for each other rank
    int device = 0;
    Duration patience{};
    // Instead, for the first messages: the ranks may still have to reach each other.
    Duration first_patience{};
  };
  // Errors: kResourceExhausted (OUT_OF_MEMORY) when the system starts no more threads.
  static absl::StatusOr<std::unique_ptr<MessageWatch>> Start(const Options& options);
  ~MessageWatch();
  MessageWatch(const MessageWatch&) = delete;
  MessageWatch& operator=(const MessageWatch&) = delete;

  // There is evidence that the rank does not come: the group is given up now. The first such rank
  // is the reason. From any thread.
  void Lose(int rank);
  // Messages cannot be carried: the same without a rank that is known to be the reason.
  void Fail();
  // Kernels that come after messages take them for no result from now on. From any thread.
  static void GiveUp(const Options& options, std::uint32_t suspects);

 private:
  explicit MessageWatch(const Options& options) : options_(options) {}
  void Loop();
  // Messages have been on their way for too long at `now`.
  bool IsOver(TimePoint now);
  // Waits for a while, unless the group has ended; whether it has.
  bool WaitForEnd();

  const Options options_;
  std::uint32_t begun_ = 0;  // as last seen
  TimePoint since_{};
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  bool failed_ SY_GUARDED_BY(mutex_) = false;
  std::uint32_t lost_ SY_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace switchyard
