#include "core/base/error.h"

#include <array>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace switchyard {
namespace {

struct ReasonRow {
  Reason reason;
  const char* name;
};

// The names are part of the API: clients match on them.
constexpr std::array<ReasonRow, 38> kReasons{{
    {Reason::kUnspecified, "REASON_UNSPECIFIED"},
    {Reason::kBadShape, "BAD_SHAPE"},
    {Reason::kBadDtype, "BAD_DTYPE"},
    {Reason::kBadTopK, "BAD_TOP_K"},
    {Reason::kExpertOutOfRange, "EXPERT_OUT_OF_RANGE"},
    {Reason::kDuplicateExpert, "DUPLICATE_EXPERT"},
    {Reason::kTooManyTokens, "TOO_MANY_TOKENS"},
    {Reason::kNanInput, "NAN_INPUT"},
    {Reason::kUnknownModel, "UNKNOWN_MODEL"},
    {Reason::kUnknownLayer, "UNKNOWN_LAYER"},
    {Reason::kUnknownSession, "UNKNOWN_SESSION"},
    {Reason::kMessageTooLarge, "MESSAGE_TOO_LARGE"},
    {Reason::kBadConfig, "BAD_CONFIG"},
    {Reason::kBadRequest, "BAD_REQUEST"},
    {Reason::kBadGrant, "BAD_GRANT"},
    {Reason::kUnknownWorker, "UNKNOWN_WORKER"},
    {Reason::kStaleEpoch, "STALE_EPOCH"},
    {Reason::kStageOrder, "STAGE_ORDER"},
    {Reason::kSessionClosed, "SESSION_CLOSED"},
    {Reason::kNotReady, "NOT_READY"},
    {Reason::kIncarnation, "INCARNATION"},
    {Reason::kLeaseHeld, "LEASE_HELD"},
    {Reason::kModelChanged, "MODEL_CHANGED"},
    {Reason::kNoCredits, "NO_CREDITS"},
    {Reason::kOutOfMemory, "OUT_OF_MEMORY"},
    {Reason::kTooManySessions, "TOO_MANY_SESSIONS"},
    {Reason::kWorkerLost, "WORKER_LOST"},
    {Reason::kStepDeadline, "STEP_DEADLINE"},
    {Reason::kCoordinatorLost, "COORDINATOR_LOST"},
    {Reason::kTransport, "TRANSPORT"},
    {Reason::kEpochChanged, "EPOCH_CHANGED"},
    {Reason::kUnsupported, "UNSUPPORTED"},
    {Reason::kWeightHash, "WEIGHT_HASH"},
    {Reason::kCheckpoint, "CHECKPOINT"},
    {Reason::kFrame, "FRAME"},
    {Reason::kStoreWrite, "STORE_WRITE"},
    {Reason::kAddressInUse, "ADDRESS_IN_USE"},
    {Reason::kInternal, "INTERNAL"},
}};

// Payload: "REASON\nkey=value\n...", with '\n' and '\\' in values escaped. Text instead of a proto,
// so that core needs no protobuf.
constexpr char kPayloadUrl[] = "switchyard/error";

std::string Escape(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Unescape(absl::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      out += text[i] == 'n' ? '\n' : text[i];
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string> PayloadLines(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return {};
  return absl::StrSplit(std::string(*payload), '\n');
}

}  // namespace

absl::string_view ReasonName(Reason reason) {
  for (const ReasonRow& row : kReasons) {
    if (row.reason == reason) return row.name;
  }
  return "REASON_UNSPECIFIED";
}

std::optional<Reason> ReasonFromName(absl::string_view name) {
  for (const ReasonRow& row : kReasons) {
    if (name == row.name) return row.reason;
  }
  return std::nullopt;
}

std::optional<Reason> ReasonFromNumber(std::uint32_t number) {
  for (const ReasonRow& row : kReasons) {
    if (static_cast<std::uint32_t>(row.reason) == number) return row.reason;
  }
  return std::nullopt;
}

std::vector<Reason> AllReasons() {
  std::vector<Reason> all;
  for (const ReasonRow& row : kReasons) {
    all.push_back(row.reason);
  }
  return all;
}

absl::Status MakeError(absl::StatusCode code, Reason reason, absl::string_view message,
                       const ErrorMetadata& metadata) {
  absl::Status status(code, message);
  std::string payload(ReasonName(reason));
  for (const auto& [key, value] : metadata) {
    absl::StrAppend(&payload, "\n", key, "=", Escape(value));
  }
  status.SetPayload(kPayloadUrl, absl::Cord(payload));
  return status;
}

// A reason of a newer peer is unknown here and reads as kUnspecified; its code still says how to
// act.
Reason ReasonOf(const absl::Status& status) {
  const std::vector<std::string> lines = PayloadLines(status);
  if (lines.empty()) return Reason::kUnspecified;
  return ReasonFromName(lines[0]).value_or(Reason::kUnspecified);
}

std::map<std::string, std::string> MetadataOf(const absl::Status& status) {
  std::map<std::string, std::string> out;
  const std::vector<std::string> lines = PayloadLines(status);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    // The first '=' separates: keys are ours and have none, values may have any.
    const std::size_t equals = lines[i].find('=');
    if (equals == std::string::npos) continue;
    out[lines[i].substr(0, equals)] = Unescape(absl::string_view(lines[i]).substr(equals + 1));
  }
  return out;
}

// Status has no setter for its message, so the payloads move to a new one.
absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status out(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

absl::Status WithMetadata(absl::Status status, absl::string_view key, absl::string_view value) {
  if (status.ok()) return status;
  const auto old = status.GetPayload(kPayloadUrl);
  // A Status of another library has no payload; a reader still expects a reason on the first line.
  std::string payload = old.has_value() ? std::string(*old) : "REASON_UNSPECIFIED";
  absl::StrAppend(&payload, "\n", key, "=", Escape(value));
  status.SetPayload(kPayloadUrl, absl::Cord(payload));
  return status;
}

}  // namespace switchyard
