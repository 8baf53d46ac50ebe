// A frame there and an empty answer back, by transport and size, against memcpy of the payload in
// the same iteration: `ratio` is the median of their quotients. Small frames cost two wakes of a
// sleeping thread; large ones ought to come near one copy in mapped memory, and two copies and the
// kernel over tcp.
//
//   transport_bench --benchmark_filter='shm/.*'
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/copy_floor.h"
#include "bench/measure.h"
#include "bench/transport_echo.h"

namespace switchyard::bench {
namespace {

constexpr std::size_t kPayloadMax = 8U << 20U;

void RoundTrip(benchmark::State& state, const std::string& transport) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  TransportEcho echo(transport, kPayloadMax);
  CopyFloor floor(bytes);
  std::vector<double> trips;
  std::vector<double> copies;
  for (auto unused : state) {
    copies.push_back(SecondsOf([&] { floor.Copy(); }));
    trips.push_back(SecondsOf([&] { echo.RoundTrip(bytes, 0); }));
    state.SetIterationTime(trips.back());
  }
  state.counters["p50_us"] = Median(trips) * 1e6;
  state.counters["memcpy_us"] = Median(copies) * 1e6;
  state.counters["ratio"] = MedianRatio(trips, copies);
  state.counters["GB/s"] = static_cast<double>(bytes) / Median(trips) / 1e9;
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) {
  for (const char* transport : {"loopback", "shm", "tcp"}) {
    auto* made = benchmark::RegisterBenchmark(transport, [transport](benchmark::State& state) {
      switchyard::bench::RoundTrip(state, transport);
    });
    for (const int bytes : {512, 4096, 65'536, 524'288, 1'835'008, 7'340'032}) made->Arg(bytes);
    made->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(0.2);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
