// Manual pages made from command lines, so that they have every option. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

#include "core/cli/cli11.h"

namespace switchyard {

// The hidden option that prints a program's page; its value is the section of the manual.
// Installing calls it.
inline constexpr char kManPageFlag[] = "--man-page";

// The page of `app` and its subcommands in the macros of man(7).
std::string ManPage(const CLI::App& app, absl::string_view section);

}  // namespace switchyard
