// A small table of options for tests.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "services/options/option.h"

namespace switchyard::testing {

struct ToySettings {
  std::string id;
  std::string level = "info";
  std::int64_t bytes = 0;
  Duration first = std::chrono::seconds(1);
  Duration last = std::chrono::seconds(5);
  std::vector<std::string> files;
};

inline OptionTable ToyTable(ToySettings* settings) {
  constexpr Duration kDay = std::chrono::hours(24);
  OptionTable table;
  table.program = "toy";
  table.about = "A toy.";
  table.sections = {{"pool", "which one"}, {"memory", "how much"}, {"timeouts", "how long"}};
  table.options = {
      TextOption({.key = "pool.id", .help = "Its name"}, &settings->id),
      WordOption({.key = "pool.level", .flag = "--log-level", .help = "The level"},
                 &settings->level, {"info", "warn"}),
      FileListOption({.key = "pool.files", .flag = "--file", .help = "Files", .unset = "none"},
                     &settings->files),
      BytesOption({.key = "memory.bytes_max", .help = "Bytes"}, &settings->bytes,
                  {0, std::numeric_limits<std::int64_t>::max()}),
      DurationOption({.key = "timeouts.retry_first", .help = "First"}, &settings->first,
                     {Duration{}, kDay}),
      DurationOption({.key = "timeouts.retry_last", .help = "Last"}, &settings->last,
                     {Duration{}, kDay}),
  };
  table.options.front().required = true;
  table.rules.push_back({{"timeouts.retry_first", "timeouts.retry_last"}, [settings] {
                           return std::string(settings->first > settings->last
                                                  ? "retry_first is above retry_last"
                                                  : "");
                         }});
  return table;
}

}  // namespace switchyard::testing
