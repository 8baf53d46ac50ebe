// The live page of a coordinator: a page for people, and the JSON that it is made of.
//
//   /                     the page; its parts are /ui/*, from the program itself
//   /api/v1/workers       ListWorkers      /api/v1/deployments  ListDeployments
//   /api/v1/events        ListEvents       /api/v1/sessions     ListSessions
//   /api/v1/plan          GetPlan          /api/v1/layer        ExplainLayer
//   /api/v1/load          GetLoad
//
// An answer is the response of the call of that name (coordinator.proto) in protobuf's JSON, with
// the names of the .proto files; the fields of its request are the arguments: "?deployment=local".
// After a failure it is a v1.Status, under the HTTP code that fits.
//
// The page asks every second. A stream of events would stay within fewer requests, but it would
// hold one of the server's few connections for each open page, and the server closes the oldest to
// answer a probe. An answer has an ETag, so that what has not changed is not sent again.
//
// Nothing here changes anything, and nothing is secret: sessions have no ids, cookies or keys.
// Still, only requests that name this server get it (services/system/host_check.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "coordinator/history/journal.h"
#include "coordinator/history/load_history.h"
#include "coordinator/view.h"
#include "services/system/http_server.h"

namespace switchyard {

// The state that is shown; Driver has methods of the same names. Thread-safe functions that wait
// for one step of the coordinator at most.
struct LiveSources {
  std::function<CoordinatorView()> view;
  std::function<std::vector<JournalEntry>(std::uint64_t after)> events;
  std::function<std::vector<SessionView>()> sessions;
  std::function<LoadView(const std::string& deployment, const LoadQuery& query)> load;
};

// A file of the page, as it was when the program was built.
struct EmbeddedFile {
  const char* name = nullptr;
  absl::string_view contents;
};
const std::vector<EmbeddedFile>& LivePageFiles();

// For SystemServer::Start. One page is made at a time (HttpWork::kQueued).
std::vector<HttpPage> LivePages(LiveSources sources);

}  // namespace switchyard
