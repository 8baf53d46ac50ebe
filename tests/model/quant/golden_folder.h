// The checkpoints that make_goldens.py wrote, opened as the product opens any.
#pragma once

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "model/experts/expert_names.h"
#include "model/experts/layer_experts.h"
#include "model/quant/config/quant_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

// One row of expected.tsv.
struct GoldenRow {
  std::string checkpoint;
  std::string scheme;
  std::int32_t expert = 0;
  Projection projection = Projection::kGate;
  std::string sha256;
  std::string first;  // hexadecimal floats, separated by blanks
};

inline std::vector<GoldenRow> GoldenRows() {
  std::vector<GoldenRow> rows;
  std::ifstream file(SY_QUANT_GOLDENS "/expected.tsv");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> column = absl::StrSplit(line, '\t');
    GoldenRow row{column[0],         column[1], std::stoi(column[2]),
                  Projection::kGate, column[4], column[5]};
    for (const Projection projection : {Projection::kUp, Projection::kDown}) {
      if (ProjectionName(projection) == column[3]) row.projection = projection;
    }
    rows.push_back(row);
  }
  return rows;
}

// A checkpoint folder with the layer whose experts a test looks at.
struct OpenedLayer {
  std::unique_ptr<CheckpointTensors> tensors;
  QuantConfig config;
  std::unique_ptr<LayerExperts> experts;
};

// `dir` is laid out as make_goldens.py does it: layer 0, sizes in config.json.
inline absl::StatusOr<OpenedLayer> OpenLayer(const std::string& dir) {
  const nlohmann::json json = nlohmann::json::parse(ReadBytes(dir + "/config.json"));
  auto tensors = CheckpointTensors::Open(dir);
  if (!tensors.ok()) return tensors.status();
  OpenedLayer layer;
  layer.tensors = std::make_unique<CheckpointTensors>(*std::move(tensors));
  auto config = LoadQuantConfig(*layer.tensors);
  if (!config.ok()) return config.status();
  layer.config = *std::move(config);
  const MoeShape shape{.hidden = json.at("hidden_size"),
                       .intermediate = json.at("moe_intermediate_size"),
                       .experts = json.at("num_experts")};
  const auto modules = FindExpertModules(
      *layer.tensors, {.model_type = json.at("model_type"), .layer = 0, .experts = shape.experts});
  if (!modules.ok()) return modules.status();
  const auto quant = ResolveLayerQuant(layer.config, *modules);
  if (!quant.ok()) return quant.status();
  layer.experts = std::make_unique<LayerExperts>(*layer.tensors, *modules, *quant, shape);
  return layer;
}

inline absl::StatusOr<OpenedLayer> OpenGolden(const std::string& name) {
  return OpenLayer(absl::StrCat(SY_QUANT_GOLDENS "/", name));
}

}  // namespace switchyard::testing
