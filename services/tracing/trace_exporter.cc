#include "services/tracing/trace_exporter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"

#include "core/base/product_version.h"
#include "core/base/wall_time.h"
#include "services/grpc/grpc_server.h"
#include "services/tracing/export_method.h"
#include "services/tracing/spans.h"
#include "switchyard/otlp/v1/trace.pb.h"

namespace switchyard {
namespace {

// A batch has about 200 bytes a span.
constexpr std::size_t kAnswerBytesMax = std::size_t{1} << 20;
// Collectors end connections that are pinged more often than they like, by default five minutes. A
// call's deadline finds a dead one.
constexpr Duration kNoPings = std::chrono::hours(24);
// How often a call that is in progress looks whether it is to be given up.
constexpr Duration kLook = std::chrono::milliseconds(20);
constexpr Duration kReportPause = std::chrono::minutes(1);

TimePoint Now() { return std::chrono::steady_clock::now(); }

void AddAttribute(const char* key, const std::string& text, otlp::v1::Resource* resource) {
  auto* attribute = resource->add_attributes();
  attribute->set_key(key);
  attribute->mutable_value()->set_string_value(text);
}

}  // namespace

// The connection to one collector. The calls have a queue of their own, so that their end is seen,
// and the channel released, on the exporting thread (services/grpc/calls_in_flight.h).
class TraceExporter::Call {
 public:
  explicit Call(std::string endpoint)
      : endpoint_(std::move(endpoint)),
        stub_(MakeGrpcChannel(endpoint_, kAnswerBytesMax, {.ping_interval = kNoPings})) {}
  ~Call() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }

  // `time_left` is asked again and again; the call is given up when it is zero.
  template <typename TimeLeft>
  grpc::Status Send(const otlp::v1::ExportTraceServiceRequest& request,
                    otlp::v1::ExportTraceServiceResponse* response, TimeLeft time_left) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(time_left()));
    const auto reader = stub_.PrepareUnaryCall(&context, kExportMethod, request, &queue_);
    grpc::Status status;
    reader->StartCall();
    reader->Finish(response, &status, this);
    void* tag = nullptr;
    bool ok = false;
    while (queue_.AsyncNext(&tag, &ok, GrpcDeadline(kLook)) == grpc::CompletionQueue::TIMEOUT) {
      if (time_left() <= Duration::zero()) context.TryCancel();
    }
    return status;
  }

 private:
  const std::string endpoint_;
  grpc::TemplatedGenericStub<otlp::v1::ExportTraceServiceRequest,
                             otlp::v1::ExportTraceServiceResponse>
      stub_;
  grpc::CompletionQueue queue_;
};

TraceExporter::TraceExporter(TraceExporterOptions options) : options_(std::move(options)) {}

TraceExporter::~TraceExporter() { Stop(options_.grace); }

std::shared_ptr<StepTracer> TraceExporter::MakeTracer(const TraceSettings& settings) {
  if (!settings.on()) return std::make_shared<StepTracer>();
  Use(settings);
  std::shared_ptr<StepTracer> tracer = hub_.MakeTracer();
  tracer->SetRatio(settings.ratio);
  return tracer;
}

std::shared_ptr<StepTracer> TraceExporter::MakeFollower() {
  follower_ = hub_.MakeTracer();
  return follower_;
}

void TraceExporter::Follow(const TraceSettings& settings) {
  if (settings.on()) Use(settings);
  if (follower_ != nullptr) follower_->SetRatio(settings.on() ? settings.ratio : 0);
}

void TraceExporter::Use(const TraceSettings& settings) {
  const MutexLock lock(mutex_);
  if (stopping_) return;
  endpoint_ = settings.endpoint;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void TraceExporter::Run() {
  bool stopping = false;
  while (!stopping) {
    // Looked at before the rings: what was written before Stop is sent.
    {
      const MutexLock lock(mutex_);
      stopping = stopping_;
    }
    const Duration pause = ExportAll() ? options_.pause : options_.failed_pause;
    const TimePoint until = Now() + pause;
    const MutexLock lock(mutex_);
    while (!stopping_ && changed_.WaitUntil(mutex_, until)) {
    }
  }
  call_.reset();
}

bool TraceExporter::ExportAll() {
  std::string endpoint;
  {
    const MutexLock lock(mutex_);
    endpoint = endpoint_;
  }
  for (int call = 0; call < options_.calls_max; ++call) {
    records_.clear();
    hub_.Take(options_.batch, &records_);
    if (records_.empty()) return true;
    const bool full = records_.size() == options_.batch;
    if (!Export(endpoint)) return false;
    if (!full) break;
  }
  return true;
}

bool TraceExporter::Export(const std::string& endpoint) {
  otlp::v1::ExportTraceServiceRequest request;
  auto* process = request.add_resource_spans();
  AddAttribute("service.name", options_.service, process->mutable_resource());
  AddAttribute("service.instance.id", options_.instance, process->mutable_resource());
  AddAttribute("service.version", kProductVersion, process->mutable_resource());
  auto* spans = process->add_scope_spans();
  spans->mutable_scope()->set_name("switchyard");
  spans->mutable_scope()->set_version(kProductVersion);
  const Duration wall = WallOfSteadyClock();
  for (const TraceRecord& record : records_) AppendSpans(record, wall, spans);

  if (call_ == nullptr || call_->endpoint() != endpoint) call_ = std::make_unique<Call>(endpoint);
  otlp::v1::ExportTraceServiceResponse response;
  const TimePoint deadline = Now() + options_.deadline;
  const grpc::Status sent = call_->Send(request, &response, [&] {
    return std::max(std::min(CallTime(), deadline - Now()), Duration::zero());
  });
  const auto all = static_cast<std::uint64_t>(spans->spans_size());
  const std::uint64_t refused =
      sent.ok() ? std::min(all, static_cast<std::uint64_t>(std::max<std::int64_t>(
                                    response.partial_success().rejected_spans(), 0)))
                : all;
  exported_.fetch_add(all - refused, std::memory_order_relaxed);
  failed_.fetch_add(refused, std::memory_order_relaxed);
  if (refused > 0) {
    failed_since_report_ += refused;
    ReportFailure(endpoint,
                  sent.ok() ? response.partial_success().error_message() : sent.error_message());
  }
  return sent.ok();
}

void TraceExporter::ReportFailure(const std::string& endpoint, const std::string& why) {
  const TimePoint now = Now();
  if (options_.logger == nullptr || now < report_at_) return;
  report_at_ = now + kReportPause;
  options_.logger->Write(LogLevel::kWarn,
                         absl::StrCat(std::exchange(failed_since_report_, 0),
                                      " spans of traces are lost: the "
                                      "collector at ",
                                      endpoint, " did not take them (", why, "); steps go on"));
}

Duration TraceExporter::CallTime() const {
  const MutexLock lock(mutex_);
  return stopping_ ? stop_by_ - Now() : options_.deadline;
}

TraceCounts TraceExporter::counts() const {
  return {.exported = exported_.load(std::memory_order_relaxed),
          .failed = failed_.load(std::memory_order_relaxed),
          .dropped = hub_.dropped()};
}

void TraceExporter::Stop(Duration grace) {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    if (!stopping_) stop_by_ = Now() + grace;
    stopping_ = true;
    thread = std::move(thread_);
  }
  changed_.NotifyAll();
  if (thread.joinable()) thread.join();
}

}  // namespace switchyard
