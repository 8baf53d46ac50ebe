// Errors: one vocabulary from the kernel call to the client.
//
// A failure is an absl::Status. Its code is the gRPC code; its text says what failed, with which
// ids, and what to do next; its payload carries a reason from the closed list below and repeats the
// ids as metadata. services/ converts the payload to google.rpc.ErrorInfo and back without loss. A
// Status is returned or logged, never both. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace switchyard {

// The closed list. docs/ERRORS.md explains each; a test keeps the two in step. Values are wire
// values (error frames carry them): append, never renumber.
enum class Reason : std::uint32_t {
  kUnspecified = 0,
  // The caller's input.
  kBadShape = 1,          // wrong rank, rows, columns or alignment
  kBadDtype = 2,          // the session or layer does not accept this dtype
  kBadTopK = 3,           // top-k differs from the layer's, or exceeds a limit
  kExpertOutOfRange = 4,  // id >= experts or < -1
  kDuplicateExpert = 5,   // the same expert twice in a row
  kTooManyTokens = 6,     // more tokens than max_tokens_per_step
  kNanInput = 7,          // strict session, NaN in a row of x
  kUnknownModel = 8,
  kUnknownLayer = 9,
  kUnknownSession = 10,
  kMessageTooLarge = 11,
  kBadConfig = 12,   // a configuration that cannot be served, found before traffic
  kBadRequest = 13,  // any other malformed request; the text names the field
  kBadGrant = 14,    // the coordinator of the deployment did not sign this session
  kUnknownWorker = 15,
  // State.
  kStaleEpoch = 20,  // epoch or plan hash is not one that is bound here
  kStageOrder = 21,  // combine before dispatch, a handle used twice
  kSessionClosed = 22,
  kNotReady = 23,      // the deployment has no committed epoch yet
  kIncarnation = 24,   // a message for or from an earlier life of a process
  kLeaseHeld = 25,     // the worker id is alive under another incarnation
  kModelChanged = 26,  // the deployment serves another model than the session opened
  // Capacity.
  // Back-pressure: the same call succeeds later.
  kNoCredits = 30,
  kOutOfMemory = 31,
  kTooManySessions = 32,
  // Peers.
  // The step or the plan failed through no fault of the caller; a retry meets a new plan or a new
  // link.
  kWorkerLost = 40,
  kStepDeadline = 41,
  kCoordinatorLost = 42,
  kTransport = 43,     // a link could not be made, or not over the requested transport
  kEpochChanged = 44,  // the step's epoch was retired while the step was in flight
  // Capability.
  // The device, its kernels or the build lack what the plan or the request names.
  kUnsupported = 50,
  // Data.
  kWeightHash = 60,  // staged weights are not those of the manifest
  kCheckpoint = 61,  // truncated, corrupt or inconsistent checkpoint; names file and tensor
  kFrame = 62,       // a frame that passed the guards but cannot be served
  // Store, start-up.
  // The coordinator's store refused a write, or a server could not take its port.
  kStoreWrite = 70,
  kAddressInUse = 71,
  kInternal = 80,
};

// SCREAMING_SNAKE, e.g. "STALE_EPOCH". Total over the enum.
absl::string_view ReasonName(Reason reason);
// The reverse lookups: nullopt for a name or number that this version does not know. A peer of a
// later version may send one; the code of its Status still decides about retries.
std::optional<Reason> ReasonFromName(absl::string_view name);
std::optional<Reason> ReasonFromNumber(std::uint32_t number);
// Every reason, for tables and tests.
std::vector<Reason> AllReasons();

// Ids that the text names, for programs: "worker", "layer", "epoch". A key appears once.
using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

// The Status for `reason`. `message` says what, with which ids, and what to do next.
absl::Status MakeError(absl::StatusCode code, Reason reason, absl::string_view message,
                       const ErrorMetadata& metadata = {});

// The reason of `status`; kUnspecified when it carries none.
Reason ReasonOf(const absl::Status& status);
// All metadata of `status`; empty when it carries none.
std::map<std::string, std::string> MetadataOf(const absl::Status& status);

// `status` with "context: " before its text; code, reason and metadata kept. Once per border.
absl::Status Annotate(const absl::Status& status, absl::string_view context);
// `status` with one more metadata pair.
absl::Status WithMetadata(absl::Status status, absl::string_view key, absl::string_view value);

}  // namespace switchyard
