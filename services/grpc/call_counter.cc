#include "services/grpc/call_counter.h"

#include <algorithm>
#include <chrono>

#include "core/base/clock.h"
#include "services/security/access.h"

namespace switchyard {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

// By ServerRpcInfo::Type.
constexpr std::array kTypes{"unary", "client_stream", "server_stream", "bidi_stream"};
static_assert(static_cast<std::size_t>(ServerRpcInfo::Type::BIDI_STREAMING) == kTypes.size() - 1);

constexpr std::array<const char*, kStatusCodes> kCodes{
    "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated"};

}  // namespace

// Lives as long as the call.
class CallCounter::Call final : public grpc::experimental::Interceptor {
 public:
  explicit Call(Row* row) : row_(row) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const auto code = static_cast<std::size_t>(methods->GetSendStatus().error_code());
      row_->handled[std::min(code, kStatusCodes - 1)].fetch_add(1, std::memory_order_relaxed);
      row_->seconds.Observe(std::chrono::steady_clock::now() - began_);
    }
    methods->Proceed();
  }

 private:
  Row* const row_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

class CallCounter::Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(CallCounter* counter) : counter_(counter) {}

  // gRPC takes the pointer, and skips the call where it is null.
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const absl::string_view path = info->method();
    const auto row = std::find_if(counter_->rows_.begin(), counter_->rows_.end(),
                                  [&](const auto& each) { return each->path == path; });
    if (row == counter_->rows_.end()) return nullptr;
    (*row)->type.store(static_cast<std::uint8_t>(info->type()), std::memory_order_relaxed);
    (*row)->started.fetch_add(1, std::memory_order_relaxed);
    return new Call(row->get());
  }

 private:
  CallCounter* const counter_;
};

CallCounter::CallCounter() {
  for (const MethodAccess& method : AccessTable()) {
    rows_.push_back(std::make_unique<Row>());
    rows_.back()->path = method.method;
  }
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CallCounter::MakeFactory() {
  return std::make_unique<Factory>(this);
}

std::vector<CallCounts> CallCounter::Counts() const {
  std::vector<CallCounts> all;
  for (const auto& row : rows_) {
    CallCounts counts;
    counts.started = row->started.load(std::memory_order_relaxed);
    if (counts.started == 0) continue;
    const std::size_t slash = row->path.rfind('/');
    counts.service = std::string(row->path.substr(1, slash - 1));
    counts.method = std::string(row->path.substr(slash + 1));
    counts.type = kTypes[row->type.load(std::memory_order_relaxed)];
    for (std::size_t code = 0; code < kStatusCodes; ++code) {
      counts.handled[code] = row->handled[code].load(std::memory_order_relaxed);
    }
    counts.seconds = row->seconds.Counts();
    all.push_back(std::move(counts));
  }
  return all;
}

const char* StatusCodeLabel(std::size_t code) { return kCodes[code]; }

}  // namespace switchyard
