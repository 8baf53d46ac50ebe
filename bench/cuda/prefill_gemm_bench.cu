// How fast the grouped products of prefill are, and whether they are right: every case is compared
// with a slow reference in double on random data, with NaN in the padding of the inputs and in the
// outputs beforehand, then timed.
//
//   burst       median of single launches, each after 8 GB were written (L2 empty, chip cool)
//   sustained   launches one behind the other: the power limit shows
//   recorded    DeepGEMM 54e2261 on one H200, burst, 2026-11-20 and 2026-11-22; some of its masked
//               layout, which here is contiguous
//   floor       operations at the nominal 1979 (FP8) or 989 (BF16) TFLOPS
//
// A case of --case is a group: `small`, which are not timed and replayed 10,000 times from a graph,
// or those of a product. Each runs with rows that stand together and with rows gathered by index.
//
// Exit status: 0 if every case is right, 1 if one is wrong, 3 on a CUDA error, 9 if a case takes
// longer than 30 s.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include "bench/cuda/device_rig.h"
#include "bench/cuda/prefill_data.cuh"
#include "worker/device/cuda/gemm/prefill_gemm.h"

namespace switchyard::bench {
namespace {

using cuda::bench::Options;

const std::string kSmall = "small";

constexpr std::int64_t kFlushBytes = std::int64_t{8} << 30;
constexpr int kBurstRuns = 15;
constexpr int kSustainedRuns = 40;
constexpr int kIdleMicroseconds = 300000;  // before a timed case: the chip's power budget recovers
constexpr int kReplays = 10000;            // of untimed cases
constexpr int kSampledRows = 96;
constexpr std::int64_t kRowsMax = 40960;
constexpr int kGuardRows = 256;  // behind the last expert, which nothing may touch

void Require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s: %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::fflush(stdout);
  _exit(3);
}

enum class Product { kFp8, kBf16, kSwiglu };
struct Case {
  Product product;
  std::vector<int> rows;  // of each expert
  int n;                  // of the weights: with SwiGLU gate and up
  int k;
  double recorded;  // TFLOPS, 0: none

  bool fp8() const { return product != Product::kBf16; }
  std::int64_t out_row_bytes() const {
    return product == Product::kSwiglu ? n / 2 : std::int64_t{n} * 2;
  }
};

struct Kernel {
  const char* name;
  bool gather;  // rows of a by index, in random order within an expert's rising list
};
constexpr Kernel kKernels[] = {{"contiguous", false}, {"gathered", true}};

struct Buffers {
  std::uint8_t* a;
  std::uint8_t* b;
  float* a_scales;
  float* b_scales;
  std::uint16_t* out;
  float* out_scales;
  std::int32_t* row_ends;
  std::int32_t* index;
  std::uint32_t* workspace;
  std::uint8_t* flush;
  std::int64_t* sampled;
  int* sampled_experts;
  CheckResult* result;
  unsigned long long* changed;
};

template <typename T>
void Allocate(T** to, std::int64_t count) {
  Require(cudaMalloc(to, static_cast<std::size_t>(count) * sizeof(T)), "cudaMalloc");
}

Buffers AllocateAll() {
  Buffers buffers;
  Allocate(&buffers.a, kRowsMax * 7168 * 2);
  Allocate(&buffers.b, std::int64_t{64} * 4096 * 7168 * 2);
  Allocate(&buffers.a_scales, kRowsMax * 56);
  Allocate(&buffers.b_scales, std::int64_t{64} * 4096 * 7168 / 16384);
  Allocate(&buffers.out, kRowsMax * 7168);
  Allocate(&buffers.out_scales, kRowsMax * 56);
  Allocate(&buffers.row_ends, 1024);
  Allocate(&buffers.index, kRowsMax);
  Allocate(&buffers.workspace, 1);
  Require(cudaMemset(buffers.workspace, 0, sizeof(std::uint32_t)), "clear");
  Allocate(&buffers.flush, kFlushBytes);
  Allocate(&buffers.sampled, 65536);
  Allocate(&buffers.sampled_experts, 65536);
  Allocate(&buffers.result, 1);
  Allocate(&buffers.changed, 1);
  return buffers;
}

struct Segments {
  std::vector<std::int32_t> ends;
  std::vector<std::int64_t> checked;
  std::vector<int> experts;         // of the checked rows
  std::vector<std::int32_t> index;  // for gathered rows; padding has none
  std::int64_t used = 0;            // rows with the padding
  std::int64_t real = 0;            // rows without
};

// All rows of small cases; else rows spread over all, with the first and last of each expert.
Segments Lay(const std::vector<int>& rows) {
  Segments segments;
  for (const int count : rows) segments.real += count;
  const bool all = segments.real <= 2048;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    for (int row = 0; row < rows[e]; ++row) {
      const bool edge = (row == 0 || row == rows[e] - 1) && e % 8 == 0;
      const std::int64_t at = segments.used + row;
      if (!all && !edge && Hash(static_cast<std::uint64_t>(at)) % segments.real >= kSampledRows) {
        continue;
      }
      segments.checked.push_back(at);
      segments.experts.push_back(static_cast<int>(e));
    }
    segments.ends.push_back(static_cast<std::int32_t>(segments.used + rows[e]));
    segments.used += (rows[e] + 127) / 128 * 128;
  }
  return segments;
}

// For every row a random row that is no padding, in rising order within an expert.
void DrawIndex(const std::vector<int>& rows, Segments* segments) {
  std::vector<std::int32_t> real;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    for (int row = 0; row < rows[e]; ++row) real.push_back(segments->ends[e] - rows[e] + row);
  }
  segments->index.assign(static_cast<std::size_t>(segments->used + kGuardRows), -1);
  for (std::size_t e = 0; e < rows.size(); ++e) {
    const auto end = segments->index.begin() + segments->ends[e];
    for (auto at = end - rows[e]; at != end; ++at) {
      *at =
          real[Hash(static_cast<std::uint64_t>(at - segments->index.begin()) + 991) % real.size()];
    }
    std::sort(end - rows[e], end);
  }
}

template <typename T>
void Upload(T* to, const std::vector<T>& from) {
  Require(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
}

// Random operands, with NaN in the rows that are padding.
void Fill(const Case& c, const Segments& segments, const Buffers& buffers) {
  const std::int64_t rows = segments.used + kGuardRows;
  const std::int64_t weights = std::int64_t{c.n} * c.k * static_cast<std::int64_t>(c.rows.size());
  if (c.fp8()) {
    FillFp8<<<1056, 512>>>(reinterpret_cast<__nv_fp8_e4m3*>(buffers.a), rows * c.k, 170.0F, 1);
    FillFp8<<<1056, 512>>>(reinterpret_cast<__nv_fp8_e4m3*>(buffers.b), weights, 112.0F, 2);
    FillScales<<<264, 512>>>(buffers.a_scales, rows * (c.k / 128), 0.004F, 3);
    FillScales<<<264, 512>>>(buffers.b_scales, weights / 16384, 0.0002F, 4);
  } else {
    FillBf16<<<1056, 512>>>(reinterpret_cast<__nv_bfloat16*>(buffers.a), rows * c.k, 1.0F, 1);
    FillBf16<<<1056, 512>>>(reinterpret_cast<__nv_bfloat16*>(buffers.b), weights, 0.02F, 2);
  }
  for (std::size_t e = 0; e < c.rows.size(); ++e) {
    const unsigned padding = static_cast<unsigned>((128 - c.rows[e] % 128) % 128);
    if (padding == 0) continue;
    PoisonRows<<<padding, 128>>>(buffers.a, std::int64_t{c.k} * (c.fp8() ? 1 : 2),
                                 c.fp8() ? buffers.a_scales : nullptr, c.k / 128, rows,
                                 segments.ends[e]);
  }
  Upload(buffers.row_ends, segments.ends);
  Upload(buffers.index, segments.index);
  Upload(buffers.sampled, segments.checked);
  Upload(buffers.sampled_experts, segments.experts);
  Require(cudaDeviceSynchronize(), "fill");
}

cudaError_t Launch(const Kernel& kernel, const Case& c, const Segments& segments,
                   const Buffers& buffers, cudaStream_t stream) {
  const cuda::PrefillShape shape{.row_ends = buffers.row_ends,
                                 .workspace = buffers.workspace,
                                 .experts = static_cast<std::int32_t>(c.rows.size()),
                                 .rows = segments.used + kGuardRows,
                                 .n = c.n,
                                 .k = c.k};
  cuda::PrefillGather gather;
  if (kernel.gather) {
    gather = {.rows = buffers.index,
              .source_rows = shape.rows,
              .row_bytes = std::int64_t{c.k} * (c.fp8() ? 1 : 2),
              .scales_row = 1,
              .scales_block = shape.rows};
  }
  if (c.product == Product::kFp8) {
    return cuda::LaunchPrefillFp8({.shape = shape,
                       .a = buffers.a,
                       .a_scales = buffers.a_scales,
                       .gather = gather,
                       .b = buffers.b,
                       .b_scales = buffers.b_scales,
                       .out = buffers.out},
                      stream);
  }
  if (c.product == Product::kBf16) {
    return cuda::LaunchPrefillBf16(
        {.shape = shape, .a = buffers.a, .gather = gather, .b = buffers.b, .out = buffers.out},
        stream);
  }
  const std::int64_t half = c.n / 2;
  cuda::PrefillFp8Swiglu product{.shape = shape,
                                 .a = buffers.a,
                                 .a_scales = buffers.a_scales,
                                 .gather = gather,
                                 .gate = buffers.b,
                                 .up = buffers.b + half * c.k,
                                 .expert_rows = c.n,
                                 .gate_scales = buffers.b_scales,
                                 .up_scales = buffers.b_scales + half / 128 * (c.k / 128),
                                 .out = buffers.out,
                                 .out_scales = buffers.out_scales};
  product.shape.n = c.n / 2;
  return cuda::LaunchPrefillFp8Swiglu(product, stream);
}

// Returns whether the outputs are right; `relative` is the relative error of all checked elements.
bool Check(const Kernel& kernel, const Case& c, const Segments& segments, const Buffers& buffers,
           double* relative) {
  const std::int64_t rows = segments.used + kGuardRows;
  Require(cudaMemset(buffers.out, 0xff, static_cast<std::size_t>(rows * c.out_row_bytes())),
          "poison");
  Require(cudaMemset(buffers.out_scales, 0xff, static_cast<std::size_t>(rows * c.n / 256) * 4),
          "poison");
  Require(cudaMemset(buffers.result, 0, sizeof(CheckResult)), "clear");
  Require(cudaMemset(buffers.changed, 0, sizeof(unsigned long long)), "clear");
  Require(Launch(kernel, c, segments, buffers, nullptr), "launch");
  Require(cudaDeviceSynchronize(), "run");
  const ReferenceArgs args{.a = buffers.a,
                           .b = buffers.b,
                           .a_scales = c.fp8() ? buffers.a_scales : nullptr,
                           .b_scales = buffers.b_scales,
                           .out = reinterpret_cast<const __nv_bfloat16*>(buffers.out),
                           .index = kernel.gather ? buffers.index : nullptr,
                           .rows = rows,
                           .n = c.n,
                           .k = c.k};
  const bool swiglu = c.product == Product::kSwiglu;
  const unsigned blocks = static_cast<unsigned>(segments.checked.size());
  if (blocks > 0 && swiglu) {
    CheckSwigluRows<<<blocks, 1024>>>(
        args, {reinterpret_cast<const __nv_fp8_e4m3*>(buffers.out), buffers.out_scales},
        buffers.sampled, buffers.sampled_experts, buffers.result);
  } else if (blocks > 0) {
    CheckRows<<<blocks, 1024>>>(args, buffers.sampled, buffers.sampled_experts, buffers.result);
  }
  CheckPoison<<<264, 512>>>(buffers.out, segments.used * c.out_row_bytes() / 2,
                            rows * c.out_row_bytes() / 2, buffers.changed);
  CheckResult result;
  unsigned long long changed = 0;
  Require(cudaMemcpy(&result, buffers.result, sizeof result, cudaMemcpyDeviceToHost), "check");
  Require(cudaMemcpy(&changed, buffers.changed, sizeof changed, cudaMemcpyDeviceToHost), "check");
  *relative = blocks > 0 ? std::sqrt(result.error2 / result.value2) : 0;
  const int columns = swiglu ? c.n / 2 : c.n;
  const bool right =
      result.checked == segments.checked.size() * static_cast<std::size_t>(columns) &&
      result.wrong == 0 && changed == 0 && *relative < (swiglu ? 0.04 : 0.004);
  if (!right) {
    std::printf("WRONG: %llu of %llu elements, %llu of the guard written\n", result.wrong,
                result.checked, changed);
  }
  return right;
}

// Whether a captured launch leaves the same bits however often it is replayed.
bool ReplaysAlike(const Kernel& kernel, const Case& c, const Segments& segments,
                  const Buffers& buffers) {
  const std::int64_t words = segments.used * c.out_row_bytes() / 2;
  auto* first = reinterpret_cast<std::uint16_t*>(buffers.flush);
  Require(
      cudaMemcpy(first, buffers.out, static_cast<std::size_t>(words) * 2, cudaMemcpyDeviceToDevice),
      "copy");
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  Require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  Require(Launch(kernel, c, segments, buffers, stream), "launch");
  Require(cudaStreamEndCapture(stream, &graph), "capture");
  Require(cudaGraphInstantiate(&executable, graph, 0), "graph");
  for (int i = 0; i < kReplays; ++i) Require(cudaGraphLaunch(executable, stream), "replay");
  Require(cudaMemsetAsync(buffers.changed, 0, sizeof(unsigned long long), stream), "clear");
  CountDifferences<<<264, 512, 0, stream>>>(first, buffers.out, words, buffers.changed);
  unsigned long long differences = 0;
  Require(cudaStreamSynchronize(stream), "replay");
  Require(cudaMemcpy(&differences, buffers.changed, sizeof differences, cudaMemcpyDeviceToHost),
          "compare");
  Require(cudaGraphExecDestroy(executable), "graph");
  Require(cudaGraphDestroy(graph), "graph");
  Require(cudaStreamDestroy(stream), "stream");
  if (differences != 0) {
    std::printf("WRONG: %llu words differ after %d replays\n", differences, kReplays);
  }
  return differences == 0;
}

struct Times {
  double burst_us;
  double best_us;
  double sustained_us;
};

Times Measure(const Kernel& kernel, const Case& c, const Segments& segments,
              const Buffers& buffers) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Require(cudaEventCreate(&begin), "event");
  Require(cudaEventCreate(&end), "event");
  float ms = 0;
  std::vector<double> burst;
  for (int run = 0; run < kBurstRuns; ++run) {
    Require(cudaMemsetAsync(buffers.flush, run, kFlushBytes, nullptr), "flush");
    Require(cudaEventRecord(begin, nullptr), "event");
    Require(Launch(kernel, c, segments, buffers, nullptr), "launch");
    Require(cudaEventRecord(end, nullptr), "event");
    Require(cudaDeviceSynchronize(), "run");
    Require(cudaEventElapsedTime(&ms, begin, end), "event");
    burst.push_back(ms * 1e3);
  }
  std::sort(burst.begin(), burst.end());
  Require(cudaEventRecord(begin, nullptr), "event");
  for (int run = 0; run < kSustainedRuns; ++run) {
    Require(Launch(kernel, c, segments, buffers, nullptr), "launch");
  }
  Require(cudaEventRecord(end, nullptr), "event");
  Require(cudaDeviceSynchronize(), "run");
  Require(cudaEventElapsedTime(&ms, begin, end), "event");
  Require(cudaEventDestroy(begin), "event");
  Require(cudaEventDestroy(end), "event");
  return {burst[burst.size() / 2], burst[0], ms * 1e3 / kSustainedRuns};
}

std::string ProductName(Product product) {
  constexpr const char* kNames[] = {"fp8", "bf16", "swiglu"};
  return kNames[static_cast<int>(product)];
}

std::string Name(const Case& c) {
  const bool even =
      std::all_of(c.rows.begin(), c.rows.end(), [&](int rows) { return rows == c.rows.front(); });
  return ProductName(c.product) + " " + std::to_string(c.rows.size()) + " x " +
         (even ? std::to_string(c.rows.front()) : "uneven") + " " + std::to_string(c.n) + "x" +
         std::to_string(c.k);
}

// The columns of one layout of a timed case.
std::vector<cuda::bench::Column> Timed(const Kernel& kernel, const Case& c,
                                       const Segments& segments, const Buffers& buffers) {
  usleep(kIdleMicroseconds);
  const Times times = Measure(kernel, c, segments, buffers);
  const double tera = 2.0 * static_cast<double>(segments.real) * c.n * c.k / 1e6;
  std::vector<cuda::bench::Column> columns = {{"burst us", times.burst_us},
                                              {"best us", times.best_us},
                                              {"burst TFLOPS", tera / times.burst_us},
                                              {"sustained TFLOPS", tera / times.sustained_us},
                                              {"floor us", tera / (c.fp8() ? 1979.0 : 989.0)}};
  if (c.recorded > 0) {
    columns.push_back({"DeepGEMM TFLOPS, recorded", c.recorded});
    columns.push_back({"of DeepGEMM", tera / times.burst_us / c.recorded});
  }
  return columns;
}

bool Run(const Options& options, const Case& c, const Buffers& buffers, bool timed) {
  Segments segments = Lay(c.rows);
  DrawIndex(c.rows, &segments);
  Fill(c, segments, buffers);
  bool right = true;
  for (const Kernel& kernel : kKernels) {
    cuda::bench::Watchdog(30);
    double relative = 0;
    const bool fits = Check(kernel, c, segments, buffers, &relative) &&
                      (timed || ReplaysAlike(kernel, c, segments, buffers));
    right = right && fits;
    std::vector<cuda::bench::Column> columns = {{"right", fits ? 1.0 : 0.0},
                                                {"relative error 1e-3", relative * 1e3}};
    if (timed && fits) {
      const auto figures = Timed(kernel, c, segments, buffers);
      columns.insert(columns.end(), figures.begin(), figures.end());
    }
    Report(options, Name(c) + " " + kernel.name, columns);
  }
  return right;
}

std::vector<Case> SmallCases(Product product) {
  return {{product, {128}, 256, 256, 0},
          {product, {256, 128}, 512, 512, 0},
          {product, {1, 0, 129, 300, 0, 128, 257}, 768, 1024, 0},
          {product, {5, 0, 400, 33}, product == Product::kSwiglu ? 1280 : 384, 640, 0},
          {product, {0, 0, 0, 7}, 2048, 768, 0},
          {product, {0, 0}, 256, 256, 0}};
}

std::vector<Case> TimedCases() {
  auto even = [](int experts, int rows) {
    return std::vector<int>(static_cast<std::size_t>(experts), rows);
  };
  std::vector<int> uneven;
  for (std::uint64_t e = 0; e < 64; ++e) uneven.push_back(static_cast<int>(Hash(e + 77) % 1000));
  constexpr Product kFp8 = Product::kFp8;
  constexpr Product kBf16 = Product::kBf16;
  constexpr Product kSwiglu = Product::kSwiglu;
  return {{kFp8, even(64, 512), 4096, 7168, 1277}, {kFp8, even(4, 8192), 4096, 7168, 1381},
          {kFp8, even(8, 4096), 4096, 7168, 1379}, {kFp8, even(64, 512), 7168, 2048, 1221},
          {kFp8, even(4, 8192), 7168, 2048, 1107}, {kFp8, even(8, 4096), 7168, 2048, 1310},
          {kFp8, even(4, 8192), 6144, 7168, 1435}, {kFp8, even(4, 8192), 7168, 3072, 1379},
          {kFp8, even(4, 8192), 4096, 4096, 1390}, {kFp8, even(4, 8192), 4096, 2048, 1350},
          {kFp8, even(8, 4096), 6144, 7168, 1419}, {kFp8, even(8, 4096), 4096, 2048, 1324},
          {kFp8, even(6, 1024), 6144, 7168, 1326}, {kFp8, even(6, 1024), 4096, 4096, 1253},
          {kFp8, even(32, 192), 6144, 7168, 991},  {kFp8, even(32, 192), 4096, 2048, 837},
          {kFp8, uneven, 4096, 7168, 0},           {kBf16, even(64, 512), 4096, 7168, 748},
          {kBf16, even(4, 8192), 4096, 7168, 805}, {kBf16, even(64, 512), 7168, 2048, 738},
          {kBf16, even(4, 8192), 7168, 2048, 799}, {kBf16, even(4, 8192), 6144, 7168, 761},
          {kBf16, even(4, 8192), 7168, 3072, 792}, {kBf16, even(4, 8192), 4096, 4096, 795},
          {kBf16, even(4, 8192), 4096, 2048, 793}, {kBf16, even(8, 4096), 6144, 7168, 764},
          {kBf16, even(8, 4096), 4096, 2048, 781}, {kBf16, even(6, 1024), 6144, 7168, 728},
          {kBf16, even(6, 1024), 4096, 4096, 711}, {kBf16, even(32, 192), 6144, 7168, 554},
          {kBf16, even(32, 192), 4096, 2048, 496}, {kBf16, uneven, 7168, 2048, 0},
          {kSwiglu, even(64, 512), 4096, 7168, 0},
          {kSwiglu, even(4, 8192), 4096, 7168, 0}, {kSwiglu, even(32, 1024), 1536, 2048, 0},
          {kFp8, even(32, 1024), 1536, 2048, 0}};
}

// The small cases, all of which are replayed, or the timed ones of one product.
bool RunGroup(const Options& options, const std::string& group, const Buffers& buffers) {
  bool right = true;
  if (group == kSmall) {
    for (const Product product : {Product::kFp8, Product::kBf16, Product::kSwiglu}) {
      for (const Case& c : SmallCases(product)) right = Run(options, c, buffers, false) && right;
    }
    return right;
  }
  for (const Case& c : TimedCases()) {
    if (ProductName(c.product) == group) right = Run(options, c, buffers, true) && right;
  }
  return right;
}

int Main(int argc, char** argv) {
  const Options options = cuda::bench::ParseOptions(argc, argv);
  if (!options.list) {
    cuda::bench::DeviceRig rig;
    ReportCeilings(options, &rig);
  }
  bool right = true;
  std::optional<Buffers> buffers;
  for (const std::string& group : {kSmall, ProductName(Product::kFp8), ProductName(Product::kBf16),
                                   ProductName(Product::kSwiglu)}) {
    if (!IsWanted(options, group)) continue;
    if (!buffers.has_value()) buffers = AllocateAll();
    right = RunGroup(options, group, *buffers) && right;
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) { return switchyard::bench::Main(argc, argv); }
