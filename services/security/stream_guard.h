// Ends the streams of callers that may not have them any more. Each call is decided about when it
// begins; a stream lasts, and the table of identities changes meanwhile. One thread looks at all
// streams twice a second, so a removed id has none left five seconds after its table changed.
//
// A stream ends once two readings of the file, a second apart, have denied it. A file that somebody
// writes in place may lack its last rows for a moment and be right otherwise, and a reading that
// fails is none (table_watch.h). Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "services/security/table_watch.h"

namespace switchyard {

class StreamGuard {
 public:
  // A stream of a server. Neither call may block, Add or Remove.
  class Stream {
   public:
    // Ends the stream with `why`. Called at most once.
    virtual void Revoke(const absl::Status& why) = 0;
    // Cuts it off, at most once: its end did not reach a caller that does not read.
    virtual void Cut() = 0;

   protected:
    ~Stream() = default;
  };
  // Names who has a stream, and of which method.
  struct Use {
    std::string caller;  // its verified id
    const char* method = "";
  };
  static constexpr Duration kInterval = std::chrono::milliseconds(500);
  static constexpr Duration kCutAfter = std::chrono::seconds(1);

  // Looks every `interval`.
  explicit StreamGuard(std::shared_ptr<TableWatch> identities, Duration interval = kInterval)
      : identities_(std::move(identities)), interval_(interval) {}
  // REQUIRES: every stream was removed.
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

  // Until Remove.
  void Add(Stream* stream, Use use);
  // When it has returned, `stream` is not called any more. Waits for a call that runs.
  void Remove(Stream* stream);

  // Looks once, as the thread does. By one thread at a time.
  void Look(TimePoint now);

 private:
  struct Entry {
    Use use;
    std::uint64_t serial = 0;  // its own: the memory of an ended stream may be another one's soon
    std::shared_ptr<const IdentityTable> denied_by = {};  // the first of two; null: it may go on
    TimePoint revoked_at{};                               // unset: it was not
    bool cut = false;
    bool busy = false;  // a call of the stream runs
  };

  // A stream that has to be called without the lock.
  struct Found {
    Stream* stream = nullptr;
    std::uint64_t serial = 0;
    absl::Status why = {};
  };

  void Run();
  // Calls `act` without the lock, unless the stream has been removed.
  template <typename Act>
  void Call(const Found& found, Act act);

  const std::shared_ptr<TableWatch> identities_;
  const Duration interval_;
  Mutex mutex_;
  CondVar changed_;
  std::map<Stream*, Entry> streams_ SY_GUARDED_BY(mutex_);
  std::uint64_t last_serial_ SY_GUARDED_BY(mutex_) = 0;
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  std::thread thread_ SY_GUARDED_BY(mutex_);  // from the first stream on
};

}  // namespace switchyard
