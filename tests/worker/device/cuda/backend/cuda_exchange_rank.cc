// One rank of a group in a process of its own, for exchange_member_test.
//
//   cuda_exchange_rank RANK RANKS DEVICE STEPS
//
// Prints the key of its heap, reads those of all ranks, one a line, and prints "joined". After the
// line "go" it makes the steps, of tokens that all ranks know, compares every answer, and prints
// "ok", "wrong STEP" or the group's fault.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include <cuda_runtime_api.h>

#include "tests/cuda/exchange_group.h"
#include "worker/device/cuda/backend/cuda_backend.h"
#include "worker/device/cuda/backend/exchange_member.h"

namespace switchyard {
namespace {

using cuda::testing::Check;
using cuda::testing::DeviceBuffer;

class RankProgram {
 public:
  RankProgram(CudaBackend* device, int rank, int ranks)
      : rank_(rank),
        shape_{.ranks = ranks,
               .tokens_max = 16,
               .hidden = 2048,
               .top_k = 4,
               .experts_of_rank = 8,
               .format = cuda::ExchangeFormat::kFp8},
        member_(*ExchangeMember::Create(device, shape_, rank)) {}

  std::string key() const { return absl::BytesToHexString(member_->key()); }
  absl::Status Join(const std::vector<std::string>& keys) {
    return member_->Join(keys, std::chrono::milliseconds(500));
  }

  std::string Run(int steps) {
    cudaStream_t stream = nullptr;
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    const std::int64_t row = shape_.hidden;
    const DeviceBuffer<std::uint16_t> answers(member_->slots_max() * row);
    DeviceBuffer<std::uint16_t> out(shape_.tokens_max * row);
    for (int number = 0; number < steps; ++number) {
      std::mt19937_64 random(static_cast<std::uint64_t>(number) * 100 +
                             static_cast<std::uint64_t>(rank_));
      const auto tokens = cuda::testing::RandomTokens(
          shape_, static_cast<int>(random() % (shape_.tokens_max + 1U)), 0.1, random);
      const DeviceBuffer<std::uint16_t> x(tokens.x);
      const DeviceBuffer<std::int32_t> ids(tokens.ids);
      const DeviceBuffer<float> weights(tokens.weights);
      const cuda::ExchangeStep step{.cover = shape_.tokens_max,
                                    .tokens = tokens.tokens,
                                    .x = x.get(),
                                    .ids = ids.get(),
                                    .weights = weights.get(),
                                    .rows = member_->rows()};
      Check(DispatchLowLatency(member_->rank(), step, false, stream), "dispatch");
      cuda::testing::FakeExperts(member_->rank(), step.rows, answers.get(), false, stream);
      Check(CombineLowLatency(member_->rank(), step, answers.get(), out.get(), false, stream),
            "combine");
      Check(cudaStreamSynchronize(stream), "step");
      const absl::Status fault = member_->Fault();
      if (!fault.ok()) return std::string(fault.message());
      const auto found = out.ToHost();
      for (int t = 0; t < tokens.tokens; ++t) {
        const auto begin = found.begin() + row * t;
        if (std::vector<std::uint16_t>(begin, begin + row) !=
            cuda::testing::ExpectedToken(shape_, tokens, t)) {
          return "wrong " + std::to_string(number);
        }
      }
    }
    return "ok";
  }

 private:
  const int rank_;
  const cuda::ExchangeShape shape_;
  const std::unique_ptr<ExchangeMember> member_;
};

int Main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int ranks = std::atoi(argv[2]);
  auto device = CudaBackend::Create({.index = std::atoi(argv[3])});
  if (!device.ok()) return 1;
  RankProgram program(device->get(), std::atoi(argv[1]), ranks);
  std::cout << program.key() << std::endl;
  std::vector<std::string> keys(static_cast<std::size_t>(ranks));
  for (std::string& key : keys) {
    std::string hex;
    std::getline(std::cin, hex);
    key = absl::HexStringToBytes(hex);
  }
  const absl::Status joined = program.Join(keys);
  std::cout << (joined.ok() ? "joined" : std::string(joined.message())) << std::endl;
  std::string go;
  std::getline(std::cin, go);
  std::cout << program.Run(std::atoi(argv[4])) << std::endl;
  return 0;
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) { return switchyard::Main(argc, argv); }
