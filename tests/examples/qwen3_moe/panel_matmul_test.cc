#include "examples/qwen3_moe/panel_matmul.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard::qwen3_moe {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint64_t kSeed = 20261120;

struct Shape {
  std::size_t rows;
  std::size_t inner;
  std::size_t columns;
};

// Ragged on every side of the tiles: rows of 2 and 4, panels of 16, groups of panels.
const Shape kShapes[] = {{1, 1, 1},    {1, 7, 16},  {1, 64, 300}, {2, 33, 15},  {3, 32, 17},
                         {4, 256, 32}, {5, 10, 47}, {7, 3, 64},   {8, 128, 16}, {9, 65, 129}};

// Rows of x and y that are further apart than they are wide, with poison between.
struct Product {
  Product(const Shape& s, std::uint64_t seed) : shape(s) {
    SeededRng rng(seed);
    x = testing::GaussianFloats(shape.rows * x_stride(), 1.0, rng);
    w = testing::GaussianFloats(shape.columns * shape.inner, 1.0, rng);
    y.assign(shape.rows * y_stride(), kPoison);
    // Panels of a longer inner side than is used, as the cache has them.
    panels.assign(PanelsFor(shape.columns) * panel_stride(), Panel{});
    for (std::size_t c = 0; c < shape.columns; ++c) {
      for (std::size_t i = 0; i < shape.inner; ++i) {
        panels[c / kPanelWidth * panel_stride() + i].lane[c % kPanelWidth] = w[c * shape.inner + i];
      }
    }
  }
  [[nodiscard]] std::size_t x_stride() const { return shape.inner + 3; }
  [[nodiscard]] std::size_t y_stride() const { return shape.columns + 5; }
  [[nodiscard]] std::size_t panel_stride() const { return shape.inner + 2; }
  [[nodiscard]] PanelMatMul call() {
    return {.x = x.data(),
            .x_stride = x_stride(),
            .rows = shape.rows,
            .w = panels.data(),
            .panel_stride = panel_stride(),
            .inner = shape.inner,
            .columns = shape.columns,
            .y = y.data(),
            .y_stride = y_stride()};
  }

  Shape shape;
  std::vector<float> x;
  std::vector<float> w;
  std::vector<Panel> panels;
  std::vector<float> y;
};

TEST(PanelMatMulTest, EveryKernelMultipliesLikeLoopsInDouble) {
  for (const MatMulKernel& kernel : UsableMatMulKernels()) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(::testing::Message() << kernel.name << " " << shape.rows << "x" << shape.inner
                                        << "x" << shape.columns << " seed " << kSeed);
      Product product(shape, kSeed);

      kernel.run(product.call());

      for (std::size_t r = 0; r < shape.rows; ++r) {
        for (std::size_t c = 0; c < shape.columns; ++c) {
          double sum = 0;
          for (std::size_t i = 0; i < shape.inner; ++i) {
            sum += static_cast<double>(product.x[r * product.x_stride() + i]) *
                   static_cast<double>(product.w[c * shape.inner + i]);
          }
          ASSERT_NEAR(product.y[r * product.y_stride() + c], sum, 1e-4) << r << ", " << c;
        }
      }
    }
  }
}

TEST(PanelMatMulTest, WritesNothingBetweenRows) {
  for (const MatMulKernel& kernel : UsableMatMulKernels()) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(::testing::Message() << kernel.name << " columns " << shape.columns);
      Product product(shape, kSeed);

      kernel.run(product.call());

      for (std::size_t i = 0; i < product.y.size(); ++i) {
        const bool inside = i % product.y_stride() < shape.columns;
        ASSERT_EQ(std::isnan(product.y[i]), !inside) << i;
      }
    }
  }
}

TEST(PanelMatMulTest, ARowHasTheSameBitsAloneAndInCompany) {
  for (const MatMulKernel& kernel : UsableMatMulKernels()) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(::testing::Message() << kernel.name << " rows " << shape.rows);
      Product all(shape, kSeed);
      Product one(shape, kSeed);

      kernel.run(all.call());
      for (std::size_t r = 0; r < shape.rows; ++r) {
        PanelMatMul call = one.call();
        call.x += r * one.x_stride();
        call.y += r * one.y_stride();
        call.rows = 1;
        kernel.run(call);
      }

      for (std::size_t i = 0; i < all.y.size(); ++i) {
        if (i % all.y_stride() < shape.columns) {
          ASSERT_EQ(all.y[i], one.y[i]) << i;
        }
      }
    }
  }
}

TEST(PanelMatMulTest, TheWidestUsableKernelIsTheOneThatRuns) {
  Product chosen({5, 40, 50}, kSeed);
  Product widest({5, 40, 50}, kSeed);

  Multiply(chosen.call());
  UsableMatMulKernels().front().run(widest.call());

  for (std::size_t r = 0; r < 5; ++r) {
    for (std::size_t c = 0; c < 50; ++c) {
      EXPECT_EQ(chosen.y[r * 55 + c], widest.y[r * 55 + c]);
    }
  }
  EXPECT_EQ(UsableMatMulKernels().back().name, "portable");
}

TEST(PanelMatMulTest, PackedMatrixMultipliesByTheTranspose) {
  const std::vector<float> w = {1, 2, 3, 40, 50, 60};  // [columns 2, inner 3]
  const std::vector<float> x = {1, 0, 2, 0, 1, 0};     // [rows 2, inner 3]
  std::vector<float> y(4, kPoison);

  const PackedMatrix packed = PackedMatrix::Pack(w, 2, 3);
  packed.Apply(x.data(), 2, y.data());

  EXPECT_EQ(packed.columns(), 2U);
  EXPECT_EQ(packed.inner(), 3U);
  EXPECT_THAT(y, ::testing::ElementsAre(7, 160, 2, 50));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
