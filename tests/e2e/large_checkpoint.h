// A checkpoint with the row sizes of Qwen3.5-397B, in its form: one base layer in ModelOpt's NVFP4
// and one MTP layer in BF16, under the names of its family. Written expert by expert; memory does
// not grow with it.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/moe_shape.h"
#include "core/rng.h"
#include "model/synthetic_model.h"
#include "tests/reference/activation_reference.h"
#include "tests/reference/scheme_reference.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

// One NVFP4 projection as it is stored: two E2M1 codes in a byte, an E4M3 scale for 16 of them.
struct StoredNvfp4 {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::string codes = {};
  std::string scales = {};
  float global = 0;  // weight_scale_2
};

class LargeCheckpoint {
 public:
  static constexpr float kInputAmax = 5.1371F;    // of Gaussian rows
  static constexpr float kMiddleAmax = 25.0731F;  // of what gate and up make of them

  LargeCheckpoint(const MoeShape& shape, bool packed_draft)
      : shape_(shape), packed_draft_(packed_draft), draft_{.seed = 73, .shape = shape} {
    dir_.Write("config.json", Config().dump());
    std::ofstream file(dir_.Join("model.safetensors"), std::ios::binary);
    const std::string header = Header();
    const std::uint64_t bytes = header.size();
    file << BytesOf(std::span<const std::uint64_t>(&bytes, 1)) << header;
    for (std::int32_t e = 0; e < shape.experts; ++e) WriteBase(e, file);
    WriteDraft(file);
    file.close();
    EXPECT_TRUE(file.good()) << "is the disk full?";
  }

  [[nodiscard]] const std::string& path() const { return dir_.path(); }
  [[nodiscard]] const MoeShape& shape() const { return shape_; }

  // By definition: e2m1 * e4m3 * weight_scale_2, even k in the low nibble.
  [[nodiscard]] SchemeExpert BaseReference(std::int32_t expert) const {
    SchemeExpert out;
    std::vector<double>* const values[] = {&out.gate, &out.up, &out.down};
    for (int p = 0; p < 3; ++p) *values[p] = Decoded(Base(expert, p));
    out.inputs = {ActivationFormat::kNvfp4, 1.0F / InputScale(0)};
    out.middle = {ActivationFormat::kNvfp4, 1.0F / InputScale(2)};
    return out;
  }
  [[nodiscard]] SchemeExpert DraftReference(std::int32_t expert) const {
    const ExpertWeights weights = Draft(expert);
    return {Doubles(weights.gate), Doubles(weights.up), Doubles(weights.down), {}, {}};
  }
  static float InputScale(int projection) {
    return (projection == 2 ? kMiddleAmax : kInputAmax) / (448.0F * 6.0F);
  }

 private:
  static constexpr char kBase[] = "model.language_model.layers.0.mlp.experts";
  static constexpr char kDraft[] = "mtp.layers.0.mlp.experts";
  static constexpr std::array<const char*, 3> kParts{"gate_proj", "up_proj", "down_proj"};

  [[nodiscard]] nlohmann::json Config() const {
    return {{"model_type", "qwen3_5_moe"},
            {"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
            {"text_config",
             {{"model_type", "qwen3_5_moe_text"},
              {"num_hidden_layers", 1},
              {"hidden_size", shape_.hidden},
              {"hidden_act", "silu"},
              {"moe_intermediate_size", shape_.intermediate},
              {"num_experts", shape_.experts},
              {"num_experts_per_tok", shape_.top_k},
              {"mtp_num_hidden_layers", 1}}},
            {"quantization_config",
             {{"quant_method", "modelopt"},
              {"quant_algo", "NVFP4"},
              {"ignore", {"lm_head", "mtp*", "*.mlp.gate"}},
              {"config_groups",
               {{"group_0",
                 {{"targets", {"Linear"}},
                  {"weights", {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}}}}}}}}}};
  }

  // [rows, columns] of a projection.
  [[nodiscard]] std::array<std::int64_t, 2> Size(int projection) const {
    if (projection == 2) return {shape_.hidden, shape_.intermediate};
    return {shape_.intermediate, shape_.hidden};
  }

  [[nodiscard]] StoredNvfp4 Base(std::int32_t expert, int projection) const {
    const auto [rows, columns] = Size(projection);
    StoredNvfp4 out{.rows = rows, .columns = columns};
    std::uint64_t state = SplitMix64(static_cast<std::uint64_t>(expert) * 8 +
                                     static_cast<std::uint64_t>(projection) + 1);
    const auto fill = [&state](std::int64_t count, auto of) {
      std::string bytes(static_cast<std::size_t>(count), '\0');
      for (std::size_t i = 0; i < bytes.size(); i += 8) {
        state += kSplitMix64Step;
        const std::uint64_t word = SplitMix64(state);
        for (std::size_t b = 0; b < 8 && i + b < bytes.size(); ++b) {
          bytes[i + b] = static_cast<char>(of((word >> (8 * b)) & 0xffU));
        }
      }
      return bytes;
    };
    out.codes = fill(rows * columns / 2, [](std::uint64_t byte) { return byte; });
    // 0.5 to 1.875: codes and scales together deviate by 3.3.
    out.scales = fill(rows * columns / 16, [](std::uint64_t byte) { return 0x30U + (byte & 15U); });
    out.global = 1.0F / (3.3F * std::sqrt(static_cast<float>(columns)));
    return out;
  }

  static std::vector<double> Decoded(const StoredNvfp4& stored) {
    const std::vector<double> e2m1 = E2m1Magnitudes();
    const std::vector<double> e4m3 = E4m3Magnitudes();
    std::vector<double> values(2 * stored.codes.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(stored.codes[i / 2]);
      const unsigned code = i % 2 == 0 ? byte & 15U : byte >> 4U;
      const double value = (code & 8U) != 0 ? -e2m1[code & 7U] : e2m1[code & 7U];
      values[i] = value * e4m3[static_cast<std::uint8_t>(stored.scales[i / 16])] *
                  static_cast<double>(stored.global);
    }
    return values;
  }
  static std::vector<double> Doubles(const std::vector<Bf16>& values) {
    std::vector<double> out(values.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<double>(Bf16ToFloat(values[i]));
    }
    return out;
  }

  [[nodiscard]] ExpertWeights Draft(std::int32_t expert) const {
    auto weights = GenerateExpert(draft_, LayerId{0}, ExpertId{expert});
    EXPECT_TRUE(weights.ok()) << weights.status();
    return *std::move(weights);
  }

  // Entries in the order in which the bytes are written.
  [[nodiscard]] std::string Header() const {
    std::vector<std::string> entries;
    std::uint64_t at = 0;
    const auto add = [&](const std::string& name, const char* dtype, std::uint64_t value_bytes,
                         const std::vector<std::int64_t>& dims) {
      std::uint64_t bytes = value_bytes;
      for (const std::int64_t dim : dims) bytes *= static_cast<std::uint64_t>(dim);
      entries.push_back(absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":[",
                                     absl::StrJoin(dims, ","), "],\"data_offsets\":[", at, ",",
                                     at + bytes, "]}"));
      at += bytes;
    };
    for (std::int32_t e = 0; e < shape_.experts; ++e) {
      for (int p = 0; p < 3; ++p) {
        const std::string module = absl::StrCat(kBase, ".", e, ".", kParts[p]);
        const auto [rows, columns] = Size(p);
        add(module + ".weight", "U8", 1, {rows, columns / 2});
        add(module + ".weight_scale", "F8_E4M3", 1, {rows, columns / 16});
        add(module + ".weight_scale_2", "F32", 4, {});
        add(module + ".input_scale", "F32", 4, {});
      }
    }
    if (packed_draft_) {
      add(absl::StrCat(kDraft, ".gate_up_proj"), "BF16", 2,
          {shape_.experts, 2 * shape_.intermediate, shape_.hidden});
      add(absl::StrCat(kDraft, ".down_proj"), "BF16", 2,
          {shape_.experts, shape_.hidden, shape_.intermediate});
    }
    for (std::int32_t e = 0; e < shape_.experts && !packed_draft_; ++e) {
      for (int p = 0; p < 3; ++p) {
        const auto [rows, columns] = Size(p);
        add(absl::StrCat(kDraft, ".", e, ".", kParts[p], ".weight"), "BF16", 2, {rows, columns});
      }
    }
    return absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  }

  void WriteBase(std::int32_t expert, std::ofstream& file) const {
    for (int p = 0; p < 3; ++p) {
      const StoredNvfp4 stored = Base(expert, p);
      const float floats[] = {stored.global, InputScale(p)};
      file << stored.codes << stored.scales << BytesOf(std::span<const float>(floats));
    }
  }

  void WriteDraft(std::ofstream& file) const {
    const auto put = [&file](const std::vector<Bf16>& values) {
      file.write(reinterpret_cast<const char*>(values.data()),
                 static_cast<std::streamsize>(values.size() * sizeof(Bf16)));
    };
    for (std::int32_t e = 0; e < shape_.experts; ++e) {
      const ExpertWeights weights = Draft(e);
      put(weights.gate);
      put(weights.up);
      if (!packed_draft_) put(weights.down);
    }
    for (std::int32_t e = 0; e < shape_.experts && packed_draft_; ++e) put(Draft(e).down);
  }

  TempDir dir_;
  MoeShape shape_;
  bool packed_draft_;
  SyntheticModel draft_;
};

}  // namespace switchyard::testing
