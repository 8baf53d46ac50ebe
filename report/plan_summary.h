// A plan in few words: layers that are alike share a row. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/plan.h"

namespace switchyard {

// "0-3 8" for 8 0 1 2 3; "" for none.
std::string Ranges(std::vector<std::int32_t> numbers);

// Experts that one worker hosts in each of some layers.
struct PlacementRow {
  WorkerOrdinal worker;
  std::string layers;          // as Ranges prints them
  std::string experts;         // logical ones
  std::int32_t per_layer = 0;  // how many copies, in each of the layers
};
// By worker, then by first layer. A worker without experts has a row with none.
std::vector<PlacementRow> SummarizePlacement(const Plan& plan);

// Configs that differ in their layer alone.
struct ConfigRow {
  std::string layers;     // as Ranges prints them
  DispatchConfig config;  // of the first of them
};
// By phase, edge, then first layer.
std::vector<ConfigRow> SummarizeConfigs(std::span<const DispatchConfig> configs);

// "cpu -> cuda"
std::string EdgeText(const Edge& edge);

}  // namespace switchyard
