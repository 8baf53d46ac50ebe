// The file of syctl's user: coordinators by name, and which of them is in use.
//
//   current: prod
//   contexts:
//     prod:
//       target: coordinator.example:7700
//       deployment: chat
//       tls_dir: /etc/switchyard/tls
//
// It is ~/.config/syctl.yaml unless XDG_CONFIG_HOME says otherwise. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace switchyard::ctl {

struct Context {
  std::string name;
  std::string target;
  // The deployment that commands mean which name none; may be empty.
  std::string deployment;
  std::string tls_dir;  // services/config/security_files.h; empty: nothing is encrypted
};

struct Contexts {
  std::string current;  // may be empty
  std::vector<Context> all;

  // Null: there is none of that name.
  [[nodiscard]] const Context* Find(const std::string& name) const;
  // Changes the fields that are not empty, or adds the context.
  void Set(const Context& context);
};

// The path of the file; empty if neither variable is set.
std::string ContextsPath(const std::string& xdg_config_home, const std::string& home);

// A file that does not exist has no contexts. Errors: kInvalidArgument (BAD_REQUEST) with file and
// line for unknown keys, for a context without a target, and for a current one that is not there.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);

// Replaces the file as a whole, and makes its folder. Errors: kFailedPrecondition (BAD_REQUEST) if
// it cannot be written.
absl::Status WriteContexts(const std::string& path, const Contexts& contexts);

// "unknown context NAME", with the known ones: kNotFound (BAD_REQUEST).
absl::Status NoSuchContext(const Contexts& contexts, const std::string& name);

}  // namespace switchyard::ctl
