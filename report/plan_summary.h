// Summarizes a plan: identical layers share a row. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/plan.h"

namespace switchyard {

// Numbers may repeat and come in any order.
// The sorted numbers with runs joined: "0-3 8" for 8 0 1 2 3; "" for none.
std::string Ranges(std::vector<std::int32_t> numbers);

// The experts of one worker in a group of layers.
struct PlacementRow {
  WorkerOrdinal worker;
  std::string layers;          // as Ranges prints them
  std::string experts;         // logical experts, as Ranges prints them
  std::int32_t per_layer = 0;  // copies in each of the layers
};
// Ascending by worker, then by first layer. A worker without experts has one empty row.
std::vector<PlacementRow> SummarizePlacement(const Plan& plan);

// Configs that only differ in their layer.
struct ConfigRow {
  std::string layers;     // as Ranges prints them
  DispatchConfig config;  // of the first layer
};
// Ascending by phase, edge, then first layer.
// For tables: plans of large models have hundreds of equal layers.
std::vector<ConfigRow> SummarizeConfigs(std::span<const DispatchConfig> configs);

// For example "cpu -> cuda".
std::string EdgeText(const Edge& edge);

}  // namespace switchyard
