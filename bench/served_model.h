// The service under measurement: a coordinator and workers as processes of their own, and a client
// of them in this one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/client.h"
#include "harness/local_deployment.h"

namespace switchyard::bench {

// One open session and the client under it.
struct ServedSession {
  std::unique_ptr<Client> client;  // nullptr: another session's
  std::unique_ptr<MoeSession> session;

  // One step, from the call to the complete y. Ends the process on an error.
  void Run(const StepRequest& request) const;
  // Where this end's time went so far; none through a gateway.
  [[nodiscard]] StepTimes Times() const;
};

// One part of steps between two Times, in microseconds a step.
double UsAStep(const StepTimes& before, const StepTimes& after, std::uint64_t StepTimes::*part);

struct SessionRequest {
  std::string transport = "shm";  // or "tcp", "gateway"
  Phase phase = Phase::kMixed;
  std::optional<DispatchMode> mode{};
  std::int32_t max_tokens = 0;
  OutputDtype y_dtype = OutputDtype::kBf16;
  Duration step_deadline = std::chrono::seconds(60);  // 0: as the service has it
};

// Ends the process when it cannot start.
class ServedModel {
 public:
  // `checkpoint`: a folder or "synthetic:...". One compute thread for each worker, unless `device`
  // (switchyard-worker --device) says otherwise. `busy_poll_us`: of workers and clients.
  ServedModel(const std::string& bin_dir, const std::string& checkpoint, std::int32_t workers,
              const std::string& device = "", int busy_poll_us = 0);
  ~ServedModel();

  [[nodiscard]] ServedSession Open(const SessionRequest& wanted) const;
  // Of a client that Open has made and that outlives the session; `wanted.transport` is that one's.
  static ServedSession OpenOn(Client& client, const SessionRequest& wanted);

 private:
  std::unique_ptr<LocalDeployment> deployment_;
  Duration busy_poll_;
};

}  // namespace switchyard::bench
