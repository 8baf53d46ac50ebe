// The arguments that every command gets.
#pragma once

#include <string>

#include "ctl/command_line.h"
#include "ctl/commands.h"
#include "ctl/coordinator_client.h"
#include "ctl/json.h"
#include "ctl/waiting.h"

namespace switchyard::ctl {

struct Run {
  const CommandLine& line;
  CoordinatorClient& coordinator;
  const Screen& screen;

  [[nodiscard]] bool json() const { return screen.format == OutputFormat::kJson; }
  // `message` as JSON or formatted by `table`, as the screen requires.
  template <typename Message, typename Table>
  std::string Show(const Message& message, Table table) const {
    return json() ? Print(ToJson(message)) : table(message);
  }
  // For as long as the command may wait.
  [[nodiscard]] Waiting waiting() const {
    return {&coordinator, line.wait_timeout, screen.viewer.tell, screen.viewer.progress,
            screen.viewer.log};
  }
};

}  // namespace switchyard::ctl
