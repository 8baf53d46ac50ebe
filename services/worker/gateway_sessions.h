// The sessions that callers have open through a gateway, so that it can leave without failing their
// steps: they are told, new ones are refused, and the process waits until they are done.
#pragma once

#include <cstddef>
#include <set>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace switchyard {

// Thread-safe.
class GatewaySessions {
 public:
  class Session {
   public:
    // The gateway leaves. Does not block and calls nothing here.
    virtual void OnLeaving() = 0;

   protected:
    ~Session() = default;
  };

  GatewaySessions() = default;
  GatewaySessions(const GatewaySessions&) = delete;
  GatewaySessions& operator=(const GatewaySessions&) = delete;

  // False: the gateway leaves and takes no session. `session` stays until Exit.
  bool Enter(Session* session);
  void Exit(Session* session);
  [[nodiscard]] std::size_t open() const;
  // A step has come, and has been answered.
  void BeginStep();
  void EndStep();

  // Tells the open sessions; from now on Enter refuses. Idempotent.
  void Leave();
  // After Leave: waits until no session is open, or none has had a step for `idle`, at most until
  // `until` of the steady clock. A caller that knows no other gateway stays until then.
  void WaitUntilDone(Duration idle, TimePoint until);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::set<Session*> sessions_ SY_GUARDED_BY(mutex_);
  std::size_t steps_ SY_GUARDED_BY(mutex_) = 0;
  TimePoint last_step_ SY_GUARDED_BY(mutex_){};  // when steps_ last changed
  bool leaving_ SY_GUARDED_BY(mutex_) = false;
};

}  // namespace switchyard
