// The step runners of this build, by the binding that a grant names. A further one is a folder and
// a line in runner_registry.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/rng.h"
#include "core/session_messages.h"
#include "core/tracing/trace_sink.h"
#include "worker/collective/source_rank.h"
#include "worker/device/device_backend.h"
#include "worker/routing/own_experts.h"
#include "worker/source/session_channel.h"
#include "worker/source/step_channel.h"
#include "worker/source/step_runner.h"
#include "worker/transport/transport.h"

namespace switchyard {

// The parts that runners are made of. Objects behind pointers outlive the factory and its runners.
// A program fills in the parts of the bindings that it supports and leaves the others out.
struct RunnerParts {
  // p2p; nullptr: this process has no p2p runner.
  SessionChannel* channel = nullptr;  // attaches to the workers
  Transport* transport = nullptr;     // the one that the Source drives
  // Encodes rows and sums replies. Several factories may share it, and `tensors`.
  std::shared_ptr<DeviceBackend> device{};
  // On which the tensors of steps lie, and its name for error texts. Null: they are memory of the
  // host. Any binding.
  std::shared_ptr<DeviceBackend> tensors{};
  std::string tensors_name{};
  const Clock* clock = nullptr;
  Rng* rng = nullptr;           // used under the Source's progress mutex; others may share it
  Incarnation incarnation{};    // of this process
  TraceSink* traces = nullptr;  // p2p; null: no step is traced
  TransportChoice transport_choice = TransportChoice::kAuto;
  std::string ring_dir{};  // collective; of the sockets of groups, as the transport's
  // collective: the worker of this process, whose ranks its sources share. Null: there is none.
  std::shared_ptr<RankHost> rank_host{};
  // Rows for this process's own worker then skip the ring.
  OwnExperts* own_experts = nullptr;  // of a worker that is a gateway; else nullptr
  std::string own_worker_id{};        // likewise
  // gateway; nullptr: this process has no gateway runner.
  StepChannel* steps = nullptr;
  std::vector<std::string> gateways{};  // "host:port", in the order of preference
};

// The factory for a Source's options. What it makes may live as long as the factory's parts; the
// devices live as long as the factory or any copy of it. Errors of the factory: kUnimplemented
// (UNSUPPORTED) for a binding that `parts` has nothing for, and for p2p on a device that does not
// reach the transport's slots; those of MakeStream.
RunnerFactory MakeRunnerFactory(RunnerParts parts);

}  // namespace switchyard
