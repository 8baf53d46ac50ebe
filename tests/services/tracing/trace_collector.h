// A collector of OpenTelemetry in this process: it takes what exporters send, over gRPC.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "services/grpc/grpc_server.h"
#include "switchyard/otlp/v1/trace.pb.h"

namespace switchyard::testing {

// A span with the process that it is from.
struct CollectedSpan {
  std::string service;
  std::string instance;
  otlp::v1::Span span;
};

class TraceCollector {
 public:
  TraceCollector() : service_(this) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~TraceCollector() {
    Release();
    server_->Shutdown(GrpcDeadline(std::chrono::seconds(1)));
    server_->Wait();
  }
  TraceCollector(const TraceCollector&) = delete;
  TraceCollector& operator=(const TraceCollector&) = delete;

  [[nodiscard]] std::string endpoint() const { return absl::StrCat("127.0.0.1:", port_); }
  // Answers stay away until Release; requests are taken all the same.
  void Hold() { holding_ = true; }
  void Release() {
    holding_ = false;
    std::vector<Reactor*> held;
    {
      const MutexLock lock(mutex_);
      held.swap(held_);
    }
    for (Reactor* reactor : held) reactor->Answer();
  }
  // The next answers say so.
  void RefuseSpans(std::int64_t spans) { refused_ = spans; }
  void FailCalls(bool fail) { failing_ = fail; }

  [[nodiscard]] std::vector<CollectedSpan> spans() const {
    const MutexLock lock(mutex_);
    return spans_;
  }
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] std::vector<std::string> methods() const {
    const MutexLock lock(mutex_);
    return methods_;
  }
  // True once `enough` of what was collected holds; false after `within`.
  template <typename Enough>
  bool WaitFor(Enough enough, Duration within = std::chrono::seconds(20)) {
    const TimePoint until = std::chrono::steady_clock::now() + within;
    const MutexLock lock(mutex_);
    while (!enough(spans_)) {
      if (!changed_.WaitUntil(mutex_, until)) return enough(spans_);
    }
    return true;
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(TraceCollector* collector, std::string method)
        : collector_(collector), method_(std::move(method)) {
      StartRead(&buffer_);
    }
    void OnReadDone(bool ok) override {
      otlp::v1::ExportTraceServiceRequest request;
      using Traits = grpc::SerializationTraits<google::protobuf::Message>;
      if (!ok || !Traits::Deserialize(&buffer_, &request).ok()) {
        Finish({grpc::StatusCode::INVALID_ARGUMENT, "not a request"});
        return;
      }
      if (collector_->Take(method_, request, this)) Answer();
    }
    void OnWriteDone(bool /*ok*/) override {}
    void OnDone() override { delete this; }
    void Answer() {
      if (collector_->failing_) return Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many"});
      otlp::v1::ExportTraceServiceResponse response;
      if (collector_->refused_ > 0) {
        response.mutable_partial_success()->set_rejected_spans(collector_->refused_);
      }
      bool own = false;
      using Traits = grpc::SerializationTraits<google::protobuf::Message>;
      Traits::Serialize(response, &buffer_, &own).ok();
      StartWriteAndFinish(&buffer_, {}, grpc::Status::OK);
    }

   private:
    TraceCollector* const collector_;
    const std::string method_;
    grpc::ByteBuffer buffer_;
  };
  class Service final : public grpc::CallbackGenericService {
   public:
    explicit Service(TraceCollector* collector) : collector_(collector) {}
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      return new Reactor(collector_, context->method());
    }

   private:
    TraceCollector* const collector_;
  };

  // False: it is answered by Release.
  bool Take(const std::string& method, const otlp::v1::ExportTraceServiceRequest& request,
            Reactor* reactor) {
    const MutexLock lock(mutex_);
    ++calls_;
    methods_.push_back(method);
    for (const auto& process : request.resource_spans()) {
      CollectedSpan of;
      for (const auto& attribute : process.resource().attributes()) {
        if (attribute.key() == "service.name") of.service = attribute.value().string_value();
        if (attribute.key() == "service.instance.id") {
          of.instance = attribute.value().string_value();
        }
      }
      for (const auto& scope : process.scope_spans()) {
        for (const auto& span : scope.spans()) {
          of.span = span;
          spans_.push_back(of);
        }
      }
    }
    changed_.NotifyAll();
    if (holding_) held_.push_back(reactor);
    return !holding_;
  }

  std::atomic<bool> holding_{false};
  std::atomic<bool> failing_{false};
  std::atomic<std::int64_t> refused_{0};
  std::atomic<int> calls_{0};
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<CollectedSpan> spans_ SY_GUARDED_BY(mutex_);
  std::vector<std::string> methods_ SY_GUARDED_BY(mutex_);
  std::vector<Reactor*> held_ SY_GUARDED_BY(mutex_);
  int port_ = 0;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

// The value of an attribute as text; empty: there is none.
inline std::string AttributeOf(const otlp::v1::Span& span, const std::string& key) {
  for (const auto& attribute : span.attributes()) {
    if (attribute.key() != key) continue;
    const auto& value = attribute.value();
    if (value.has_int_value()) return absl::StrCat(value.int_value());
    return value.string_value();
  }
  return "";
}

}  // namespace switchyard::testing
