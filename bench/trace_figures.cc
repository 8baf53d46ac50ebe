// The cost of traces to a step. Four deployments side by side, measured in turn: two without
// traces, whose quotient shows what the measurement can tell apart, one that traces a step in a
// hundred, and one that traces all, to a collector in this process.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

#include "bench/figures.h"
#include "bench/in_process_model.h"
#include "bench/measure.h"
#include "bench/moe_batch.h"
#include "bench/served_model.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/tracing/trace_sink.h"
#include "harness/in_process_deployment.h"
#include "services/grpc/grpc_server.h"
#include "services/tracing/trace_exporter.h"

namespace switchyard::bench {
namespace {

// Short, so that what else runs on the machine meets all ways alike.
constexpr int kStepsARound = 50;
constexpr int kRoundsAPass = 200;
constexpr std::size_t kBatches = 16;
constexpr std::int32_t kWorkers = 2;

// Reads what exporters send and answers that it was taken.
class Collector {
 public:
  Collector() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~Collector() { server_->Shutdown(GrpcDeadline(Duration::zero())); }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;
  [[nodiscard]] std::string endpoint() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartRead(&buffer_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "no request"});
      // An answer without fields.
      buffer_.Clear();
      const grpc::Slice none;
      buffer_ = grpc::ByteBuffer(&none, 1);
      StartWriteAndFinish(&buffer_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer buffer_;
  };
  class Service final : public grpc::CallbackGenericService {
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
      return new Reactor();
    }
  };

  int port_ = 0;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

// All tracers of the deployment, which trace alike.
class Tracers final : public TraceSink {
 public:
  explicit Tracers(std::string endpoint) : endpoint_(std::move(endpoint)) {}
  std::shared_ptr<StepTracer> MakeTracer(const TraceSettings& /*settings*/) override {
    const MutexLock lock(mutex_);
    all_.push_back(exporter_.MakeTracer({.ratio = 1, .endpoint = endpoint_}));
    all_.back()->SetRatio(0);
    return all_.back();
  }
  void SetRatio(double ratio) {
    const MutexLock lock(mutex_);
    for (const auto& tracer : all_) tracer->SetRatio(ratio);
  }
  [[nodiscard]] TraceCounts counts() const { return exporter_.counts(); }

 private:
  const std::string endpoint_;
  TraceExporter exporter_{{.service = "switchyard-bench", .instance = "all"}};
  Mutex mutex_;
  std::vector<std::shared_ptr<StepTracer>> all_ SY_GUARDED_BY(mutex_);
};

// A client owns its sink, and here it is all clients' and workers'.
class SharedSink final : public TraceSink {
 public:
  explicit SharedSink(Tracers* tracers) : tracers_(tracers) {}
  std::shared_ptr<StepTracer> MakeTracer(const TraceSettings& settings) override {
    return tracers_->MakeTracer(settings);
  }

 private:
  Tracers* const tracers_;
};

struct Way {
  const char* name;
  double ratio;
  std::vector<double> p50_us{};   // of a step, by round
  std::vector<double> mean_us{};  // likewise
};

void RunRound(const ServedSession& session, std::vector<MoeBatch>& batches, std::size_t layers,
              Way* way) {
  std::vector<double> times;
  double sum = 0;
  for (std::size_t i = 0; i < kStepsARound; ++i) {
    const StepRequest request =
        batches[i % kBatches].Request(LayerId{static_cast<std::int32_t>(i % layers)});
    times.push_back(SecondsOf([&] { session.Run(request); }) * 1e6);
    sum += times.back();
  }
  way->mean_us.push_back(sum / kStepsARound);
  way->p50_us.push_back(Median(std::move(times)));
}

}  // namespace

void TraceFigures(const RunOptions& options, Report* report) {
  const Collector collector;
  const InProcessModel model(options.model, 1, 1, options.device);
  std::vector<MoeBatch> batches;
  for (std::size_t i = 0; i < kBatches; ++i) batches.emplace_back(model.shape(), 1, i);
  Tracers tracers(collector.endpoint());
  Logger logger("acceptance", LogLevel::kOff);
  InProcessOptions deploy;
  deploy.logger = &logger;
  deploy.checkpoint = options.model;
  deploy.workers = kWorkers;
  deploy.over_ucx = true;
  deploy.make_tracer = [&tracers] { return tracers.MakeTracer({}); };
  deploy.make_traces = [&tracers] { return std::make_unique<SharedSink>(&tracers); };
  const auto deployment = OrExit(InProcessDeployment::Start(deploy));
  OrExit(deployment->WaitUntilServes(std::chrono::seconds(120)));
  ServedSession session;
  session.client = OrExit(deployment->MakeClient());
  OpenSessionRequest request;
  request.deployment = "local";
  request.phase = Phase::kDecode;
  request.y_dtype = OutputDtype::kBf16;
  session.session = OrExit(session.client->Open(request));
  std::vector<Way> ways{{"none", 0}, {"none again", 0}, {"one in a hundred", 0.01}, {"all", 1}};
  const int rounds = options.passes * kRoundsAPass;
  for (int round = -kRoundsAPass / 4; round < rounds; ++round) {
    if (round == 0) {
      for (Way& way : ways) way.p50_us = way.mean_us = {};  // of the warm-up
    }
    // Each in turn at each place, so that none always follows the same one.
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const auto turn = static_cast<std::size_t>(round + kRoundsAPass);
      Way& way = ways[(i + turn) % ways.size()];
      tracers.SetRatio(way.ratio);
      RunRound(session, batches, model.layers(), &way);
    }
  }
  // Between the two without: what passes with time meets the others as well.
  Way none = ways[0];
  for (std::size_t i = 0; i < none.p50_us.size(); ++i) {
    none.p50_us[i] = (none.p50_us[i] + ways[1].p50_us[i]) / 2;
    none.mean_us[i] = (none.mean_us[i] + ways[1].mean_us[i]) / 2;
  }
  std::vector<double> slower;  // by the medians
  for (const Way& way : ways) {
    slower.push_back(MedianRatio(way.p50_us, none.p50_us));
    report->Add(
        {.name =
             absl::StrFormat("decode T=1, two workers, traced: %s; p50 of that without", way.name),
         .value = slower.back(),
         .unit = "x",
         .floor = absl::StrFormat("p50 %.1f us against %.1f us; mean %.3f x", Median(way.p50_us),
                                  Median(none.p50_us), MedianRatio(way.mean_us, none.mean_us))});
  }
  // A median does not see the traced steps among a hundred, so their part is a hundredth of what
  // they cost when all are traced.
  report->Add({.name = "decode T=1, two workers: cost of tracing one step in a hundred",
               .value = (slower[2] - 1 + (slower[3] - 1) / 100) * 100,
               .unit = "%",
               .at_most = 1,
               .floor = absl::StrFormat("%.2f %% at steps that are not traced, %.2f %% at those "
                                        "that are; two without differ by %.2f %%",
                                        (slower[2] - 1) * 100, slower[3] - 1,
                                        (slower[1] - slower[0]) * 100)});
}

}  // namespace switchyard::bench
