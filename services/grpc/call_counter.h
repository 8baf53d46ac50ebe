// Counts the calls that a server answers, by method and status code, for its metrics.
//
// Thread-safe. A call costs one allocation, two readings of the clock and a few atomic additions; a
// message of a stream, one call of a function that does nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "grpcpp/support/server_interceptor.h"

#include "core/base/histogram.h"

namespace switchyard {

// Status codes have numbers from 0 (OK) to 16.
inline constexpr std::size_t kStatusCodes = 17;

// The calls of one method.
struct CallCounts {
  std::string service;         // "switchyard.v1.CoordinatorService"
  std::string method;          // "GetPlan"
  const char* type = "unary";  // or "client_stream", "server_stream", "bidi_stream"
  std::uint64_t started = 0;   // begun, ended ones included
  std::array<std::uint64_t, kStatusCodes> handled{};  // ended, by status code
  HistogramCounts seconds;                            // from begin to end
};

class CallCounter {
 public:
  // Has a row for each method of AccessTable, so that the number of rows is bounded.
  CallCounter();
  CallCounter(const CallCounter&) = delete;
  CallCounter& operator=(const CallCounter&) = delete;

  // For ServerBuilder::experimental().SetInterceptorCreators. The counter outlives the server.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeFactory();

  // Returns a row for each method that was called, in the order of AccessTable. Calls that were
  // refused before they reached their method, such as those that a caller may not make, are not
  // counted.
  [[nodiscard]] std::vector<CallCounts> Counts() const;

 private:
  class Call;
  class Factory;
  struct Row {
    absl::string_view path;  // "/switchyard.v1.CoordinatorService/GetPlan"
    std::atomic<std::uint8_t> type{0};
    std::atomic<std::uint64_t> started{0};
    std::array<std::atomic<std::uint64_t>, kStatusCodes> handled{};
    Histogram seconds{kDurationBounds};
  };

  std::vector<std::unique_ptr<Row>> rows_;  // never changes
};

// "InvalidArgument", as other programs' metrics of gRPC name it.
const char* StatusCodeLabel(std::size_t code);

}  // namespace switchyard
