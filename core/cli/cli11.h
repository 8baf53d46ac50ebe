// CLI11's names for headers that only pass them on. Its own header takes seconds to compile, in
// every source that sees it: "CLI/CLI.hpp" belongs in the few that define options.
#pragma once

namespace CLI {
class App;
class ParseError;
}  // namespace CLI
