// The checkpoints of tests/model/quant/goldens, dressed up so that a deployment can serve them: one
// layer of a model of their family, with static scales for Gaussian rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "model/quant/layout/dequantize.h"
#include "model/safetensors/checkpoint_tensors.h"
#include "tests/model/quant/golden_folder.h"
#include "tests/model/quant/whole_checkpoints.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

inline const char* const kServedGoldens[] = {"bf16_packed",
                                             "fp8_block",
                                             "fp8_block_compressed",
                                             "fp8_block_ue8m0",
                                             "fp8_channel",
                                             "fp8_tensor_static",
                                             "fp8_tensor_dynamic",
                                             "nvfp4_modelopt_flat",
                                             "nvfp4_modelopt_file",
                                             "nvfp4_compressed",
                                             "w4afp8",
                                             "w8a8_compressed",
                                             "modelslim_w8a8",
                                             "modelslim_w4a8_channel",
                                             "modelslim_w4a8_group",
                                             "modelslim_w4a4",
                                             "w4a16_kimi",
                                             "awq"};

class ServedGolden {
 public:
  // `draft`: with an MTP layer of BF16 experts behind, which the quant config does not exclude. Of
  // goldens of DeepSeek-V3.
  explicit ServedGolden(const std::string& name, bool draft = false) : draft_(draft) {
    from_ = absl::StrCat(SY_QUANT_GOLDENS "/", name);
    const nlohmann::json golden = nlohmann::json::parse(ReadBytes(from_ + "/config.json"));
    hidden_ = golden.at("hidden_size");
    experts_ = golden.at("num_experts");
    intermediate_ = golden.at("moe_intermediate_size");
    CopyGolden(name, dir_);
    nlohmann::json config = nlohmann::json::parse(ReadBytes(dir_.Join("config.json")));
    nlohmann::json& text = config.contains("text_config") ? config["text_config"] : config;
    text["num_experts_per_tok"] = top_k();
    if (draft) text["num_nextn_predict_layers"] = 1;
    // Whose decoder is read as well, though nobody here asks for it.
    if (config["model_type"] == "qwen3_moe") {
      config.update(nlohmann::json{{"num_attention_heads", 1},
                                   {"num_key_value_heads", 1},
                                   {"head_dim", 2},
                                   {"vocab_size", 8},
                                   {"max_position_embeddings", 16},
                                   {"rope_theta", 10000.0}});
    }
    dir_.Write("config.json", config.dump());
    WriteTensors();
  }

  [[nodiscard]] const std::string& path() const { return dir_.path(); }
  [[nodiscard]] std::int32_t hidden() const { return hidden_; }
  [[nodiscard]] std::int32_t experts() const { return experts_; }
  [[nodiscard]] std::int32_t top_k() const { return experts_ < 2 ? experts_ : 2; }

 private:
  void WriteTensors() {
    const auto tensors = CheckpointTensors::Open(from_);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    std::vector<WrittenTensor> written;
    for (const std::string& name : tensors->names()) {
      const TensorInfo& info = *tensors->Find(name);
      WrittenTensor tensor;
      tensor.name = name;
      tensor.dtype = std::string(TensorDtypeName(info.dtype));
      tensor.shape = info.shape;
      tensor.bytes.resize(info.bytes);
      ASSERT_TRUE(tensors->Read(name, std::as_writable_bytes(std::span(tensor.bytes))).ok());
      if (absl::StrContains(name, ".input_")) tensor.bytes = CalibratedBytes(name, tensor.dtype);
      written.push_back(std::move(tensor));
    }
    if (draft_) AddDraft(&written);
    dir_.Write("model.safetensors", SafetensorsBytes(written));
  }

  void AddDraft(std::vector<WrittenTensor>* written) const {
    const MoeShape shape{hidden_, intermediate_, experts_, top_k()};
    for (std::int32_t e = 0; e < experts_; ++e) {
      const RandomExpert expert(shape, 900 + static_cast<std::uint64_t>(e));
      const std::string module = absl::StrCat("model.layers.1.mlp.experts.", e, ".");
      const auto add = [&](const char* name, const std::vector<Bf16>& values, std::int64_t rows,
                           std::int64_t columns) {
        written->push_back({absl::StrCat(module, name, ".weight"),
                            "BF16",
                            {rows, columns},
                            BytesOf(std::span<const Bf16>(values))});
      };
      add("gate_proj", expert.gate, intermediate_, hidden_);
      add("up_proj", expert.up, intermediate_, hidden_);
      add("down_proj", expert.down, hidden_, intermediate_);
    }
  }

  // Largest magnitude of Gaussian rows, and of what expert `expert` makes of them.
  static float AmaxOf(const LayerExperts& experts, std::int32_t expert, bool down) {
    constexpr float kRowsAmax = 4.5371F;  // no round number: BF16 rows would lie on ties of FP4
    if (!down) return kRowsAmax;
    const auto raw = experts.Load(expert);
    EXPECT_TRUE(raw.ok()) << raw.status();
    const std::vector<float> gate = Dequantize(raw->of(Projection::kGate));
    const std::vector<float> up = Dequantize(raw->of(Projection::kUp));
    const auto columns = static_cast<std::size_t>(raw->of(Projection::kGate).size.columns);
    SeededRng rng(3);
    double amax = 0;
    for (int row = 0; row < 64; ++row) {
      std::vector<double> x(columns);
      for (double& value : x) value = NextGaussian(rng);
      for (std::size_t n = 0; n < gate.size() / columns; ++n) {
        double g = 0;
        double u = 0;
        for (std::size_t k = 0; k < columns; ++k) {
          g += static_cast<double>(gate[n * columns + k]) * x[k];
          u += static_cast<double>(up[n * columns + k]) * x[k];
        }
        amax = std::max(amax, std::fabs(g / (1.0 + std::exp(-g)) * u));
      }
    }
    return static_cast<float>(amax) * 2.0371F;  // Other rows may go further.
  }

  // "...experts.1.down_proj.input_scale", as the tools of its family would have measured it.
  std::string CalibratedBytes(const std::string& name, const std::string& dtype) const {
    const auto layer = OpenLayer(from_);
    EXPECT_TRUE(layer.ok()) << layer.status();
    const std::string module = name.substr(0, name.rfind('.'));
    const std::size_t dot = module.rfind('.', module.rfind('.') - 1);
    const bool down = absl::EndsWith(module, "down_proj") || absl::EndsWith(module, "w2");
    const float amax = AmaxOf(*layer->experts, std::stoi(module.substr(dot + 1)), down);
    const bool nvfp4 = layer->experts->quant().scheme == QuantScheme::kNvfp4;
    float scale = amax / (nvfp4 ? 448.0F * 6.0F : 448.0F);
    if (absl::EndsWith(name, "input_global_scale")) scale = 1.0F / scale;
    const std::vector<float> values{scale};
    return dtype == "BF16" ? Bf16Tensor("", {}, values).bytes : F32Tensor("", {}, values).bytes;
  }

  TempDir dir_;
  std::string from_;
  bool draft_;
  std::int32_t hidden_ = 0;
  std::int32_t intermediate_ = 0;
  std::int32_t experts_ = 0;
};

}  // namespace switchyard::testing
