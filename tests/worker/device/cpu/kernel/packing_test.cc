#include "worker/device/cpu/kernel/packing.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

constexpr std::uint64_t kSeed = 51;
constexpr std::byte kPoison{0xee};

// Sizes that are multiples of everything, and of nothing.
constexpr KernelDims kDims[] = {{.hidden = 96, .intermediate = 64},
                                {.hidden = 50, .intermediate = 37},
                                {.hidden = 1, .intermediate = 1}};

struct Matrices {
  explicit Matrices(const KernelDims& dims) {
    SeededRng rng(kSeed);
    for (std::vector<Bf16>* matrix : {&gate, &up, &down}) {
      for (std::int64_t i = 0; i < dims.hidden * dims.intermediate; ++i) {
        matrix->push_back(static_cast<Bf16>(rng.Next()));
      }
    }
  }
  [[nodiscard]] KernelWeights view() const { return {gate.data(), up.data(), down.data()}; }
  std::vector<Bf16> gate;
  std::vector<Bf16> up;
  std::vector<Bf16> down;
};

// matrix[output][k] of a row-major matrix, 0 outside of it.
Bf16 At(const std::vector<Bf16>& matrix, std::int64_t k_count, std::int64_t output,
        std::int64_t k) {
  const std::int64_t outputs = static_cast<std::int64_t>(matrix.size()) / k_count;
  if (output >= outputs || k >= k_count) return 0;
  return matrix[static_cast<std::size_t>(output * k_count + k)];
}

Bf16 Read(const std::byte* at) {
  Bf16 value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

TEST(PackingTest, LanesHoldEachWeightWhereTheLayoutSays) {
  for (const KernelDims& dims : kDims) {
    const Matrices weights(dims);
    std::vector<std::byte> packed(static_cast<std::size_t>(LanesBytes(dims)) + 1, kPoison);

    PackLanes(dims, weights.view(), packed.data());

    const std::byte* at = packed.data();
    for (std::int64_t first = 0; first < dims.intermediate; first += 16) {
      for (std::int64_t k = 0; k < dims.hidden; ++k) {
        for (std::int64_t j = 0; j < 16; ++j, at += 4) {
          ASSERT_EQ(Read(at), At(weights.gate, dims.hidden, first + j, k));
          ASSERT_EQ(Read(at + 2), At(weights.up, dims.hidden, first + j, k));
        }
      }
    }
    for (std::int64_t first = 0; first < dims.hidden; first += 32) {
      for (std::int64_t k = 0; k < dims.intermediate; ++k) {
        for (std::int64_t j = 0; j < 16; ++j, at += 4) {
          ASSERT_EQ(Read(at), At(weights.down, dims.intermediate, first + j, k));
          ASSERT_EQ(Read(at + 2), At(weights.down, dims.intermediate, first + 16 + j, k));
        }
      }
    }
    ASSERT_EQ(at, packed.data() + packed.size() - 1);
    EXPECT_EQ(packed.back(), kPoison);
  }
}

// The tile of `source` for outputs from `first` and k from `k_first` on.
void ExpectTile(const std::byte* tile, const std::vector<Bf16>& matrix, std::int64_t k_count,
                std::int64_t first, std::int64_t k_first) {
  for (std::int64_t pair = 0; pair < 16; ++pair) {
    for (std::int64_t column = 0; column < 16; ++column) {
      for (std::int64_t half = 0; half < 2; ++half) {
        ASSERT_EQ(Read(tile + pair * 64 + column * 4 + half * 2),
                  At(matrix, k_count, first + column, k_first + 2 * pair + half));
      }
    }
  }
}

TEST(PackingTest, TilesHoldEachWeightWhereTheLayoutSays) {
  for (const KernelDims& dims : kDims) {
    const Matrices weights(dims);
    std::vector<std::byte> packed(static_cast<std::size_t>(TilesBytes(dims)) + 1, kPoison);

    PackTiles(dims, weights.view(), packed.data());

    const std::byte* at = packed.data();
    for (std::int64_t first = 0; first < dims.intermediate; first += 16) {
      for (std::int64_t k = 0; k < dims.hidden; k += 32, at += 2048) {
        ExpectTile(at, weights.gate, dims.hidden, first, k);
        ExpectTile(at + 1024, weights.up, dims.hidden, first, k);
      }
    }
    for (std::int64_t first = 0; first < dims.hidden; first += 32) {
      for (std::int64_t k = 0; k < dims.intermediate; k += 32, at += 2048) {
        ExpectTile(at, weights.down, dims.intermediate, first, k);
        ExpectTile(at + 1024, weights.down, dims.intermediate, first + 16, k);
      }
    }
    ASSERT_EQ(at, packed.data() + packed.size() - 1);
    EXPECT_EQ(packed.back(), kPoison);
  }
}

}  // namespace
}  // namespace switchyard
