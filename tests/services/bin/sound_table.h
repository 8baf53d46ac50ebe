// What holds for the table of options of every program.
#pragma once

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"

#include "services/options/read_options.h"

namespace switchyard::testing {

// Keys and flags are unique and of one style, sections exist, help is a sentence, and every default
// is a value that its own option takes.
inline void ExpectSoundTable(const OptionTable& table) {
  std::set<std::string> sections;
  for (const OptionSection& section : table.sections) {
    EXPECT_TRUE(sections.insert(section.name).second) << section.name;
  }
  std::set<std::string> keys;
  std::set<std::string> flags{"--help", "--version", "--config", "--print-config"};
  for (const Option& option : table.options) {
    EXPECT_TRUE(sections.contains(option.key.substr(0, option.key.find('.')))) << option.key;
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    EXPECT_TRUE(flags.insert(option.flag).second) << option.flag;
    EXPECT_TRUE(absl::StartsWith(option.flag, "--")) << option.flag;
    ASSERT_FALSE(option.help.empty()) << option.key;
    EXPECT_FALSE(absl::EndsWith(option.help, ".")) << option.key;
    const std::vector<std::string> value = option.get();
    if (value.empty()) {
      EXPECT_TRUE(option.required || !option.unset.empty()) << option.key << " has no default";
    } else {
      EXPECT_EQ(option.set(value), "") << option.key;
      EXPECT_EQ(option.get(), value) << option.key;
    }
  }
}

// Every value that is printed is read as the same value.
inline void ExpectPrintedIsReadBack(const OptionTable& table, const std::string& file) {
  const auto before = PrintOptions(table, {});
  const auto given = ReadOptionFile(table, file);
  ASSERT_TRUE(given.ok()) << given.status();
  const auto origins = ApplyOptions(table, *given);
  ASSERT_TRUE(origins.ok()) << origins.status();
  EXPECT_EQ(PrintOptions(table, {}), before);
  for (const Option& option : table.options) {
    EXPECT_EQ(origins->contains(option.key), !option.get().empty()) << option.key;
  }
}

}  // namespace switchyard::testing
