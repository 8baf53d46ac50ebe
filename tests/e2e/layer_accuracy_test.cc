// How near a quantized layer's output is to its definition and to the unquantized layer: every
// scheme that switchyard-quantize writes, every wire dtype that its experts take on CPU workers,
// Gaussian rows of 2048 and 7168 values, top-8 and top-10.
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "model/experts/expert_values.h"
#include "model/quant/layout/dequantize.h"
#include "quantize/encode.h"
#include "quantize/scheme_table.h"
#include "tests/reference/calc_diff.h"
#include "tests/reference/scheme_reference.h"
#include "tests/testing/expert_runs.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/expert_view.h"
#include "worker/device/host/host_codec.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::CalcDiffWorstRow;
using testing::GaussianBf16;
using testing::RandomExpert;
using testing::SchemeMoe;

constexpr std::int32_t kExperts = 12;
constexpr std::int32_t kTokens = 40;
constexpr std::int32_t kIntermediate = 128;
constexpr std::int32_t kFewTokens = 8;
constexpr double kKernelMax = 1e-4;
// Of all tokens where no weight is rounded: a last bit of a sum may still move an activation over a
// step, or the scale of a row by a BF16 step.
constexpr double kExactKernelMax = 1e-5;

// "none" is no row of the writer's table: its weights are stored as they are.
std::vector<std::string> SchemeNames() {
  std::vector<std::string> names{"none"};
  for (const WriteScheme& row : WriteSchemes()) names.emplace_back(row.name);
  return names;
}

std::vector<float> Floats(const std::vector<Bf16>& values) {
  std::vector<float> floats(values.size());
  Bf16ToFloats(values, floats);
  return floats;
}

// A layer as its checkpoint would have it, calibrated with the rows of the test itself.
class Layer {
 public:
  Layer(const std::string& scheme, const MoeShape& shape) : shape_(shape) {
    if (scheme != "none") write_ = *FindWriteScheme(scheme);
    auto device = MakeDevice("cpu");
    EXPECT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    SeededRng rng(31);
    x_ = GaussianBf16(static_cast<std::size_t>(kTokens) * static_cast<std::size_t>(shape.hidden),
                      1.0, rng);
    for (std::int32_t t = 0; t < kTokens; ++t) {
      const auto first = static_cast<std::int32_t>(rng.Below(kExperts));
      for (std::int32_t k = 0; k < shape.top_k; ++k) {
        ids_.push_back((first + k) % kExperts);
        weights_.push_back(static_cast<float>(rng.Uniform()) + 0.05F);
      }
    }
    for (std::int32_t e = 0; e < kExperts; ++e) {
      plain_.emplace_back(shape, 100 + static_cast<std::uint64_t>(e));
    }
    Calibrate();
    for (std::int32_t e = 0; e < kExperts; ++e) raw_.push_back(Stored(e));
    const LayerInputScales scales = ScalesOf();
    for (std::int32_t e = 0; e < kExperts; ++e)
      AddExpert(raw_[static_cast<std::size_t>(e)], scales);
    // Of the layer: equal for all experts, as the writer makes it.
    const float input = scales.gate_up_max;
    wire_global_scale_ = input > 0 ? 1.0F / input : 1.0F;
  }

  [[nodiscard]] QuantScheme scheme() const {
    return write_ == nullptr ? QuantScheme::kNone : write_->scheme();
  }
  // Values and scales of every weight are those of the checkpoint.
  [[nodiscard]] bool exact() const { return exact_; }
  // The formats in which CPU workers get rows of this scheme.
  [[nodiscard]] std::vector<WireFormat> Formats() const {
    std::vector<WireFormat> formats;
    for (const NamedWireFormat& row : WireFormats()) {
      const bool pow2 = write_ != nullptr && write_->gate_up.power_of_two_scales;
      if (row.format == (pow2 ? kFp8Format : kFp8Ue8m0Format)) continue;
      const SchemeUse use{DeviceKind::kCpu, DispatchMode::kLowLatency, true};
      if (Accepts(scheme(), row.format.dtype, use, DtypeOrigin::kExplicit))
        formats.push_back(row.format);
    }
    return formats;
  }

  // What the device makes of rows that came in `format`.
  std::vector<float> Run(const WireFormat& format) {
    const float global = format == kNvfp4Format ? wire_global_scale_ : 1.0F;
    auto codec = device_->MakeCodec({format, global});
    EXPECT_TRUE(codec.ok()) << codec.status();
    const auto hidden = static_cast<std::size_t>(shape_.hidden);
    std::vector<const Bf16*> rows;
    for (std::size_t t = 0; t < kTokens; ++t) rows.push_back(x_.data() + t * hidden);
    const RowBytes bytes = RowBytesOf(format, shape_.hidden);
    std::vector<std::byte> data(static_cast<std::size_t>(bytes.data * kTokens) + 1);
    std::vector<std::byte> scales(static_cast<std::size_t>(bytes.scales * kTokens) + 1);
    AsHostCodec(**codec).Encode(rows, shape_.hidden, data.data(), scales.data());
    std::vector<Bf16> decoded(x_.size(), 0x7fc0);
    AsHostCodec(**codec).Decode(data.data(), scales.data(), kTokens, shape_.hidden, decoded.data());
    return RunExperts(decoded, format != kBf16Format);
  }
  // `rounds`: with the quantizers of wire and experts; else none at all.
  [[nodiscard]] std::vector<double> Reference(const WireFormat& format, bool rounds) {
    moe_.wire = testing::WireRounding(format, wire_global_scale_);
    return SchemeMoeLayer(moe_, shape_, {x_, ids_, weights_}, rounds);
  }

 private:
  // Largest magnitudes of the rows and of every expert's middle, as workers record them.
  void Calibrate() {
    const auto hidden = static_cast<std::size_t>(shape_.hidden);
    std::vector<const Bf16*> rows;
    for (std::size_t t = 0; t < kTokens; ++t) rows.push_back(x_.data() + t * hidden);
    std::vector<float> out(x_.size());
    for (const RandomExpert& expert : plain_) {
      SY_ASSERT_OK_AND_ASSIGN(const auto packed, device_->Pack(shape_, expert.view()));
      ExpertAmax amax;
      const testing::RowsForExpert batch{
          .expert = packed.get(), .rows = rows, .out = out.data(), .amax = &amax};
      testing::RunOnDevice(*device_, shape_, {&batch, 1});
      amax_.push_back(amax);
    }
  }

  [[nodiscard]] RawExpert Stored(std::int32_t e) const {
    const RandomExpert& plain = plain_[static_cast<std::size_t>(e)];
    const std::vector<float> values[] = {Floats(plain.gate), Floats(plain.up), Floats(plain.down)};
    RawExpert raw;
    for (const Projection projection : kAllProjections) {
      const auto index = static_cast<std::size_t>(projection);
      const bool down = projection == Projection::kDown;
      ProjectionSize size{down ? shape_.hidden : shape_.intermediate,
                          down ? shape_.intermediate : shape_.hidden};
      if (write_ == nullptr) {
        const std::vector<Bf16>* bf16[] = {&plain.gate, &plain.up, &plain.down};
        const auto bytes = std::as_bytes(std::span(*bf16[index]));
        raw.projections[index] = {{},
                                  size,
                                  {{TensorRole::kWeight,
                                    TensorDtype::kBf16,
                                    {size.rows, size.columns},
                                    {bytes.begin(), bytes.end()}}}};
        continue;
      }
      const float shared = std::max(AmaxOf(values[0]), AmaxOf(values[1]));
      auto encoded = Encode(
          {.quant = write_->of(projection),
           .projection = projection,
           .size = size,
           .weights = values[index],
           .module = "layer",
           .global_amax = down ? AmaxOf(values[2]) : shared,
           .input_amax = down ? amax_[static_cast<std::size_t>(e)].middle : amax_[0].inputs});
      EXPECT_TRUE(encoded.ok()) << encoded.status();
      raw.projections[index] = *std::move(encoded);
    }
    return raw;
  }

  // As LayerExperts::InputScales.
  [[nodiscard]] LayerInputScales ScalesOf() const {
    LayerInputScales scales;
    for (const RawExpert& raw : raw_) {
      for (const Projection projection : kAllProjections) {
        const RawProjection& one = raw.of(projection);
        const RawTensor* tensor = one.Find(TensorRole::kInputScale);
        if (tensor == nullptr) return {};
        float value = FloatAt(*tensor, 0);
        if (one.quant.layout == QuantLayout::kNvfp4Compressed) value = 1.0F / value;
        float& most = projection == Projection::kDown ? scales.down_max : scales.gate_up_max;
        most = std::max(most, value);
      }
    }
    return scales;
  }

  void AddExpert(const RawExpert& raw, const LayerInputScales& scales) {
    LayerQuant quant;
    quant.scheme = scheme();
    for (const Projection p : kAllProjections) {
      quant.projections[static_cast<std::size_t>(p)] = raw.of(p).quant;
    }
    const ExpertActivations activations = ActivationsOf(quant, raw, scales);
    ExpertWeights served;
    served.inputs = activations.inputs;
    served.middle = activations.middle;
    testing::SchemeExpert reference{{}, {}, {}, served.inputs, served.middle};
    std::vector<double>* const doubles[] = {&reference.gate, &reference.up, &reference.down};
    for (const Projection p : kAllProjections) {
      const auto index = static_cast<std::size_t>(p);
      ProjectionValues values = ValuesOf(raw.of(p));
      served.of(p) = std::move(values.values);
      exact_ = exact_ && (write_ == nullptr || values.scales != WeightScales{});
      served.scales[index] = std::move(values.scales);
      const std::vector<float> weights = Dequantize(raw.of(p));
      doubles[index]->assign(weights.begin(), weights.end());
    }
    moe_.experts.push_back(std::move(reference));
    auto packed = device_->Pack(shape_, ViewOf(served));
    EXPECT_TRUE(packed.ok()) << packed.status();
    packed_.push_back(*std::move(packed));
  }

  std::vector<float> RunExperts(const std::vector<Bf16>& x, bool rounded) {
    const std::uint8_t flag = rounded ? 1 : 0;
    const auto hidden = static_cast<std::size_t>(shape_.hidden);
    std::vector<float> y(x.size(), 0);
    // All pairs in one run: workspaces of large shapes are dear.
    std::vector<const Bf16*> rows(ids_.size());
    std::vector<float> out(ids_.size() * hidden, std::numeric_limits<float>::quiet_NaN());
    std::vector<testing::RowsForExpert> batches;
    for (std::size_t pair = 0; pair < ids_.size(); ++pair) {
      rows[pair] = x.data() + pair / static_cast<std::size_t>(shape_.top_k) * hidden;
      batches.push_back({.expert = packed_[static_cast<std::size_t>(ids_[pair])].get(),
                         .rows = {&rows[pair], 1},
                         .out = out.data() + pair * hidden,
                         .rounded = &flag});
    }
    testing::RunOnDevice(*device_, shape_, batches);
    for (std::size_t pair = 0; pair < ids_.size(); ++pair) {
      const std::size_t token = pair / static_cast<std::size_t>(shape_.top_k);
      for (std::size_t i = 0; i < hidden; ++i) {
        y[token * hidden + i] += weights_[pair] * out[pair * hidden + i];
      }
    }
    return y;
  }

  MoeShape shape_;
  const WriteScheme* write_ = nullptr;
  std::unique_ptr<DeviceBackend> device_;
  std::vector<Bf16> x_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
  std::vector<RandomExpert> plain_;
  std::vector<ExpertAmax> amax_;
  std::vector<RawExpert> raw_;
  std::vector<std::unique_ptr<PackedExpert>> packed_;
  SchemeMoe moe_;
  float wire_global_scale_ = 1;
  bool exact_ = true;
};

class LayerAccuracyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(LayerAccuracyTest, IsWithinTheBoundsOfItsCoarsestQuantizer) {
  for (const auto& [hidden, top_k] : {std::pair{2048, 8}, std::pair{7168, 10}}) {
    Layer layer(GetParam(), {hidden, kIntermediate, kExperts, top_k});
    const double kernel_max = layer.exact() ? kExactKernelMax : kKernelMax;
    for (const WireFormat& format : layer.Formats()) {
      SCOPED_TRACE(absl::StrCat("hidden ", hidden, " wire ", WireFormatName(format)));
      const std::vector<float> y = layer.Run(format);

      const std::vector<double> rounded = layer.Reference(format, true);
      const double kernel = CalcDiff(y, rounded);
      const double few =
          CalcDiffWorstRow(y, rounded, static_cast<std::size_t>(kFewTokens * hidden));
      const double quantized = CalcDiff(y, layer.Reference(format, false));

      const double bound = LayerErrorBound(CoarsestActivationQuant(layer.scheme(), format.dtype));
      std::cout << absl::StreamFormat(
          "layer %-26s %-9s hidden %d top-%d: kernel %.2e of %.0e, worst 8 tokens %.2e, "
          "quantization %.2e of %.2e\n",
          GetParam(), WireFormatName(format), hidden, top_k, kernel, kernel_max, few, quantized,
          bound);
      EXPECT_LE(kernel, kernel_max);
      EXPECT_LE(few, kKernelMax) << "the worst " << kFewTokens << " tokens one after the other";
      EXPECT_LE(quantized, bound);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, LayerAccuracyTest, ::testing::ValuesIn(SchemeNames()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace switchyard
