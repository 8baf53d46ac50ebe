// One rank of a group in a process of its own, for exchange_member_test.
//
//   cuda_exchange_rank RANK RANKS EXPERT_RANKS DEVICE STEPS WIRE UNIT
//
// WIRE: the name of a format, or "all": each step has another. UNIT: worker, expert, messages: sums
// of workers, that NCCL carries; or in a group of many tokens fp8: sums of workers that come back
// as FP8, or many: steps of many tokens, by experts in FP8 unless WIRE is bf16. Prints its key,
// reads those of all ranks, one a line, and prints "joined". After the line "go" it makes the
// steps, each of random tokens that every rank can make again, compares every answer bit by bit
// with what the same experts give over the seam's Run, and prints "ok", "wrong STEP" or the group's
// fault; before, if there are very many steps, "running".
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"

#include "core/rng.h"
#include "tests/testing/expert_runs.h"
#include "tests/testing/random_tensors.h"
#include "worker/device/cpu/codec/codec_kernels.h"
#include "worker/device/cuda/backend/cuda_backend.h"

namespace switchyard {
namespace {

using testing::OkOrAbort;

constexpr MoeShape kShape{.hidden = 2048, .intermediate = 256, .experts = 16, .top_k = 4};
constexpr std::int32_t kTokensMax = 16;    // of a step
constexpr std::int32_t kManyTokens = 300;  // of a group whose kernels are those of many
constexpr int kManySteps = 1000;
constexpr int kSaysRunning = 2;                       // the number of a step
constexpr Duration kLong = std::chrono::seconds(60);  // more than the first messages have

struct Tokens {
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  [[nodiscard]] std::int32_t count() const {
    return static_cast<std::int32_t>(ids.size()) / kShape.top_k;
  }
};

Tokens RandomTokens(std::uint64_t seed, std::int32_t most) {
  SeededRng rng(seed);
  const std::size_t count = rng.Below(static_cast<std::uint64_t>(most) + 1);
  Tokens tokens;
  tokens.x = testing::GaussianBf16(count * kShape.hidden, 1.0, rng);
  std::vector<std::int32_t> experts(kShape.experts);
  for (std::size_t t = 0; t < count; ++t) {
    std::iota(experts.begin(), experts.end(), 0);
    for (std::size_t k = 0; k < kShape.top_k; ++k) {
      std::swap(experts[k], experts[k + rng.Below(experts.size() - k)]);
      tokens.ids.push_back(rng.Below(10) == 0 ? -1 : experts[k]);
      tokens.weights.push_back(static_cast<float>(rng.Uniform()));
    }
  }
  return tokens;
}

// An expert whose weights are codes of E4M3 with scales of blocks.
class CodedExpert {
 public:
  explicit CodedExpert(std::uint64_t seed) {
    SeededRng rng(seed);
    for (Bf16& code : codes_) code = FloatToBf16(static_cast<float>(rng.Below(31)) - 15.0F);
    for (float& scale : scales_) scale = static_cast<float>(0.5 + rng.Uniform()) * 0.003F;
  }
  [[nodiscard]] ExpertWeightsView view() const {
    const std::span<const Bf16> codes(codes_);
    const std::span<const float> scales(scales_);
    ExpertWeightsView view{.gate = codes.first(kSize),
                           .up = codes.subspan(kSize, kSize),
                           .down = codes.subspan(2 * kSize, kSize)};
    view.gate_scales.blocks = scales.first(kBlocks);
    view.up_scales.blocks = scales.subspan(kBlocks, kBlocks);
    view.down_scales.blocks = scales.subspan(2 * kBlocks, kBlocks);
    view.inputs.format = view.middle.format = ActivationFormat::kFp8Group;
    return view;
  }

 private:
  static constexpr std::size_t kSize = std::size_t{kShape.hidden} * kShape.intermediate;
  static constexpr std::size_t kBlocks = kSize / (128 * 128);
  std::vector<Bf16> codes_ = std::vector<Bf16>(3 * kSize);
  std::vector<float> scales_ = std::vector<float>(3 * kBlocks);
};

// Memory of a device with the stream that fills it.
class Memory {
 public:
  Memory(DeviceBackend* device, Stream* stream) : device_(device), stream_(stream) {}
  template <typename T>
  T* Of(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    buffers_.push_back(
        OkOrAbort(device_->Allocate(std::max<std::size_t>(bytes, 16), MemoryKind::kDevice)));
    Copy(buffers_.back()->data(), reinterpret_cast<const std::byte*>(values.data()), bytes);
    return reinterpret_cast<T*>(buffers_.back()->data());
  }
  template <typename T>
  void Read(const T* from, std::vector<T>* to) {
    Copy(reinterpret_cast<std::byte*>(to->data()), reinterpret_cast<const std::byte*>(from),
         to->size() * sizeof(T));
  }
  void Wait() {
    const auto event = stream_->MakeEvent();
    if (!stream_->Record(event.get()).ok() || !event->Wait(kLong) || !event->status().ok()) {
      std::cout << "device: " << event->status() << std::endl;
      std::exit(1);
    }
  }

 private:
  void Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes == 0) return;
    const CopyPiece piece{.to = to, .from = from, .bytes = bytes};
    if (!stream_->Copy({&piece, 1}).ok()) std::exit(1);
    Wait();
  }
  DeviceBackend* const device_;
  Stream* const stream_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

class RankProgram {
 public:
  struct Steps {
    bool all_formats = false;
    bool fp8_sums = false;
    std::int32_t tokens_max = kTokensMax;
    bool fp8_experts = false;
  };
  RankProgram(DeviceBackend* device, const ExchangeSpec& spec, std::int32_t rank,
              const Steps& steps)
      : device_(device),
        spec_(spec),
        rank_(rank),
        steps_(steps),
        exchange_(OkOrAbort(device->MakeExchange(spec, rank))),
        stream_(OkOrAbort(device->MakeStream({}))),
        workspace_(OkOrAbort(device->MakeWorkspace(kShape, steps.tokens_max * kShape.top_k))) {
    for (const NamedWireFormat& row : WireFormats()) {
      if (!steps.all_formats && row.format != spec.wire) continue;
      const float scale = row.format == kNvfp4Format ? 13.5F : 1.0F;
      codecs_.push_back(
          OkOrAbort(device->MakeCodec({.format = row.format, .global_scale = scale})));
    }
    if (steps.fp8_sums) sums_ = OkOrAbort(device->MakeCodec({.format = kFp8Format}));
    std::vector<TableEntry> all;
    std::vector<TableEntry> own;
    for (std::int32_t e = 0; e < kShape.experts; ++e) {
      all.push_back({ExpertId{e}, Pack(e)});
      if (e / spec.experts_of_rank() == rank) own.push_back(all.back());
    }
    if (!own.empty()) own_ = OkOrAbort(device->MakeTable(own));
    all_ = OkOrAbort(device->MakeTable(all));
  }

  Exchange& exchange() { return *exchange_; }

  std::string Run(int steps) {
    for (int number = 0; number < steps; ++number) {
      const Tokens tokens =
          RandomTokens(static_cast<std::uint64_t>(number) * 100 + static_cast<std::uint64_t>(rank_),
                       steps_.tokens_max);
      Memory memory(device_, stream_.get());
      std::vector<Bf16> y(tokens.x.size(), 0xffff);
      codec_ = codecs_[static_cast<std::size_t>(number) % codecs_.size()].get();
      const ExchangeStep step{.cover = steps_.tokens_max,
                              .codecs = {.rows = RowCodec(), .sums = sums_.get()},
                              .tokens = tokens.count(),
                              .x = memory.Of(tokens.x),
                              .ids = memory.Of(tokens.ids),
                              .weights = memory.Of(tokens.weights),
                              .y = memory.Of(y),
                              .experts = own_.get()};
      const absl::Status enqueued = exchange_->Step(stream_.get(), step);
      if (!enqueued.ok()) return std::string(enqueued.message());
      memory.Wait();
      const absl::Status fault = exchange_->Fault();
      if (!fault.ok()) return std::string(fault.message());
      memory.Read(static_cast<const Bf16*>(step.y), &y);
      if (y != Expected(tokens)) return "wrong " + std::to_string(number);
      if (number == kSaysRunning && steps > kManySteps) std::cout << "running" << std::endl;
    }
    return "ok";
  }

 private:
  [[nodiscard]] std::shared_ptr<const PackedExpert> Pack(std::int32_t e) const {
    const auto seed = static_cast<std::uint64_t>(e) + 100;
    if (steps_.fp8_experts) return OkOrAbort(device_->Pack(kShape, CodedExpert(seed).view()));
    return OkOrAbort(device_->Pack(kShape, testing::RandomExpert(kShape, seed).view()));
  }
  [[nodiscard]] const Codec* RowCodec() const {
    return codec_->format() == kBf16Format ? nullptr : codec_;
  }
  // The answers to (token, choice), as each expert gives them to a row of its own.
  std::vector<Bf16> Answers(const Tokens& tokens) {
    const auto hidden = static_cast<std::size_t>(kShape.hidden);
    const auto pairs = static_cast<std::uint32_t>(tokens.ids.size());
    const RowBytes bytes = RowBytesOf(codec_->format(), kShape.hidden);
    Memory memory(device_, stream_.get());
    std::vector<std::byte> data(pairs * static_cast<std::size_t>(bytes.data));
    std::vector<std::byte> scales(pairs * static_cast<std::size_t>(bytes.scales));
    std::vector<Bf16> out(pairs * hidden);
    std::vector<std::uint32_t> indices(pairs);
    for (std::uint32_t i = 0; i < pairs; ++i) indices[i] = i / kShape.top_k;
    const EncodeRun encode{.codec = codec_,
                           .x = memory.Of(tokens.x),
                           .x_stride = kShape.hidden,
                           .indices = indices,
                           .hidden = kShape.hidden,
                           .data = memory.Of(data),
                           .scales = memory.Of(scales)};
    ExpertInput input{.codec = RowCodec(),
                      .rows = encode.data,
                      .scales = encode.scales,
                      .count = pairs,
                      .slots = tokens.ids.data(),
                      .out = memory.Of(out)};
    const absl::Status run = stream_->Encode(encode);
    if (!run.ok() ||
        !stream_->Run({.experts = all_.get(), .workspace = workspace_.get(), .inputs = {&input, 1}})
             .ok()) {
      std::exit(1);
    }
    memory.Wait();
    memory.Read(static_cast<const Bf16*>(input.out), &out);
    return out;
  }

  std::vector<Bf16> Expected(const Tokens& tokens) {
    const auto hidden = static_cast<std::size_t>(kShape.hidden);
    const auto top_k = static_cast<std::size_t>(kShape.top_k);
    const std::vector<Bf16> answers = Answers(tokens);
    std::vector<float> y(tokens.x.size(), 0.0F);
    const bool per_worker = spec_.unit == CombineUnit::kPerWorker;
    for (std::int32_t r = 0; r < (per_worker ? spec_.expert_ranks : 1); ++r) {
      std::vector<float> part(y.size(), 0.0F);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t t = i / hidden;
        for (std::size_t k = 0; k < top_k; ++k) {
          const std::int32_t id = tokens.ids[t * top_k + k];
          if (id < 0 || (per_worker && id / spec_.experts_of_rank() != r)) continue;
          const Bf16 answer = answers[(t * top_k + k) * hidden + i % hidden];
          part[i] = std::fma(tokens.weights[t * top_k + k], Bf16ToFloat(answer), part[i]);
        }
      }
      if (!per_worker) {
        y = part;
        continue;
      }
      const std::vector<Bf16> sent = Sent(part);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += Bf16ToFloat(sent[i]);
    }
    std::vector<Bf16> rounded;
    for (const float sum : y) rounded.push_back(FloatToBf16(sum));
    return rounded;
  }

  // A rank's sums as they arrive.
  [[nodiscard]] std::vector<Bf16> Sent(const std::vector<float>& sums) const {
    std::vector<Bf16> rows;
    for (const float sum : sums) rows.push_back(FloatToBf16(sum));
    if (sums_ == nullptr) return rows;
    const RowBytes bytes = RowBytesOf(kFp8Format, kShape.hidden);
    std::vector<std::byte> row(static_cast<std::size_t>(bytes.total()));
    for (std::size_t at = 0; at < rows.size(); at += static_cast<std::size_t>(kShape.hidden)) {
      std::byte* const scales = row.data() + bytes.data;
      kScalarCodecKernels.fp8.encode(rows.data() + at, kShape.hidden, 1.0F, row.data(), scales);
      kScalarCodecKernels.fp8.decode(row.data(), scales, kShape.hidden, 1.0F, rows.data() + at);
    }
    return rows;
  }

  DeviceBackend* const device_;
  const ExchangeSpec spec_;
  const std::int32_t rank_;
  const Steps steps_;
  std::unique_ptr<ExpertTable> all_;
  std::unique_ptr<ExpertTable> own_;
  const std::unique_ptr<Exchange> exchange_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Workspace> workspace_;
  std::vector<std::unique_ptr<Codec>> codecs_;  // steps take them in turn
  std::unique_ptr<Codec> sums_;
  const Codec* codec_ = nullptr;  // of this step
};

int Main(int argc, char** argv) {
  if (argc != 8) return 2;
  const int rank = std::atoi(argv[1]);
  const std::string wire = argv[6];
  const std::string unit = argv[7];
  const auto device = OkOrAbort(CudaBackend::Create({.index = std::atoi(argv[4])}));
  const ExchangeSpec spec{
      .shape = kShape,
      .ranks = std::atoi(argv[2]),
      .expert_ranks = std::atoi(argv[3]),
      .tokens_max = unit == "fp8" || unit == "many" ? kManyTokens : kTokensMax,
      .wire = WireFormatFromName(wire).value_or(kBf16Format),
      .unit = unit == "expert" ? CombineUnit::kPerExpert : CombineUnit::kPerWorker,
      .by_messages = unit == "messages"};
  const bool many = unit == "many";
  RankProgram program(device.get(), spec, rank,
                      {.all_formats = wire == "all",
                       .fp8_sums = unit == "fp8",
                       .tokens_max = many ? kManyTokens : kTokensMax,
                       .fp8_experts = many && wire != "bf16"});
  std::cout << absl::BytesToHexString(program.exchange().key()) << std::endl;
  std::vector<std::string> keys(static_cast<std::size_t>(spec.ranks));
  for (std::string& key : keys) {
    std::string hex;
    std::getline(std::cin, hex);
    key = absl::HexStringToBytes(hex);
  }
  const absl::Status joined = program.exchange().Join(keys, std::chrono::milliseconds(500));
  std::cout << (joined.ok() ? "joined" : std::string(joined.message())) << std::endl;
  std::string go;
  std::getline(std::cin, go);
  std::cout << program.Run(std::atoi(argv[5])) << std::endl;
  return 0;
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) { return switchyard::Main(argc, argv); }
