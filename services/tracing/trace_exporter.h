// Sends the spans of this process to a collector of OpenTelemetry, over gRPC.
//
//   threads of steps --records--> rings --> one exporting thread --spans--> collector
//
// The thread exists from the first time that tracing is on. It takes some hundred records at a
// time, and a call to the collector has a deadline and is not repeated: what the collector does
// not take is counted and lost, as is what finds a ring full. So a collector that is slow, gone or
// wrong costs its spans and nothing else. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/trace_settings.h"
#include "core/tracing/trace_counts.h"
#include "core/tracing/trace_hub.h"
#include "core/tracing/trace_sink.h"

namespace switchyard {

struct TraceExporterOptions {
  std::string service;       // "switchyard-worker", "switchyard-client"
  std::string instance;      // which of them
  Logger* logger = nullptr;  // outlives the exporter; null: nothing is logged
  std::size_t batch = 512;   // records of one call
  int calls_max = 8;         // between two pauses: a flood must not take a CPU
  Duration pause = std::chrono::milliseconds(100);  // between two looks at the rings
  Duration deadline = std::chrono::seconds(5);      // of a call
  // After a call that failed: the rings are left alone meanwhile, and so overflow.
  Duration failed_pause = std::chrono::seconds(1);
  Duration grace{};  // of the destructor, as Stop
};

class TraceExporter final : public TraceSink {
 public:
  explicit TraceExporter(TraceExporterOptions options);
  // As Stop, with the grace of the options.
  ~TraceExporter() override;
  TraceExporter(const TraceExporter&) = delete;
  TraceExporter& operator=(const TraceExporter&) = delete;

  // Starts to export if `settings` are on. Of several endpoints the newest counts.
  std::shared_ptr<StepTracer> MakeTracer(const TraceSettings& settings) override;
  // A tracer whose ratio is that of the last Follow; call once. Nothing is traced before.
  std::shared_ptr<StepTracer> MakeFollower();
  void Follow(const TraceSettings& settings);

  [[nodiscard]] TraceCounts counts() const override;
  // Sends what the rings hold, for at most `grace`, and ends the thread. Idempotent.
  void Stop(Duration grace);

 private:
  class Call;

  void Use(const TraceSettings& settings);
  void Run();
  // Sends what the rings hold, in calls of a batch. False when a call has failed.
  bool ExportAll();
  bool Export(const std::string& endpoint);
  // At most once a minute.
  void ReportFailure(const std::string& endpoint, const std::string& why);
  // How long a call may take now.
  [[nodiscard]] Duration CallTime() const;

  const TraceExporterOptions options_;
  TraceHub hub_;
  std::shared_ptr<StepTracer> follower_;
  std::atomic<std::uint64_t> exported_{0};
  std::atomic<std::uint64_t> failed_{0};

  mutable Mutex mutex_;
  CondVar changed_;
  std::string endpoint_ SY_GUARDED_BY(mutex_);
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  TimePoint stop_by_ SY_GUARDED_BY(mutex_) = TimePoint::max();
  std::thread thread_ SY_GUARDED_BY(mutex_);

  // These belong to the exporting thread.
  std::unique_ptr<Call> call_;
  std::vector<TraceRecord> records_;
  TimePoint report_at_{};
  std::uint64_t failed_since_report_ = 0;
};

}  // namespace switchyard
