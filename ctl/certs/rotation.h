// The authority of 'syctl certs' as files, and its rotation: how another one takes its place while
// processes run. A process may have files that are as old as kPhaseSeconds, so each phase changes
// only what the former one has prepared everywhere:
//
//   settled --announce--> announced --switch--> switched --settle--> settled
//
//   announced   every ca.crt has the next authority too; certificates stay
//   switched    the next one is the current one and issues all certificates; every ca.crt has both
//   settled     no ca.crt has an authority of before, whose certificates are refused from then on
//
//   FOLDER/ca.crt, ca.key       the current authority
//   FOLDER/next.crt, next.key   the next one; only while announced
//   FOLDER/previous.crt         those of before, the last one first; their keys are gone
//   FOLDER/rotation.yaml        the record; without it the authority has settled
//
// A file is replaced in one step, and whatever happens between two of them, the next run goes on.
// Not for two processes at once on one folder (FolderLock).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "services/security/authority.h"

namespace switchyard::ctl {

// A kubelet updates the files of a Pod within about a minute and its cache may be another one old,
// and gRPC reads files every ten seconds.
inline constexpr std::int64_t kPhaseSeconds = 150;

enum class AuthorityPhase : std::uint8_t { kSettled, kAnnounced, kSwitched };
absl::string_view PhaseName(AuthorityPhase phase);

struct RotationRecord {
  AuthorityPhase phase = AuthorityPhase::kSettled;
  std::int64_t since_s = 0;  // Unix time; zero: there has been no rotation
  // Each --rotate-authority that began one, the last one last; at most kWordsMax.
  std::vector<std::string> words;
};
inline constexpr std::size_t kWordsMax = 16;

// Zero where nothing has to wait.
std::int64_t SecondsToWait(const RotationRecord& record, std::int64_t now_s);
// One line, for whoever has to go on; empty if there has been no rotation.
std::string RotationText(const RotationRecord& record, std::int64_t now_s);

struct Authority {
  std::string folder;
  RotationRecord record;
  KeyedCertificate current;
  KeyedCertificate next;              // only while announced
  std::vector<std::string> previous;  // certificates, the last one first, at most 16
};

// AuthorityOrder says what a new authority gets, and whether one is wanted.
struct AuthorityOrder {
  std::string name;       // as MakeAuthority
  std::int64_t days = 1;  // likewise
  std::string word;       // --rotate-authority; empty: no wish
};

// Errors, of all: kInvalidArgument, kNotFound and kFailedPrecondition (BAD_CONFIG), naming the
// file that is missing, wrong, or cannot be written.
absl::StatusOr<RotationRecord> ReadRecord(const std::string& folder);
// The authority of a folder that exists, made if it is not there. Finishes what a run left half
// done. A next authority whose key is not its own is refused before anything is written.
absl::StatusOr<Authority> OpenAuthority(const std::string& folder, const AuthorityOrder& order);

// Goes one phase on if it is time. `all_have_it`: before this run every holder already had the
// bundle of the phase and, after the switch, a certificate of the current authority. Otherwise the
// wait begins anew. A rotation begins if `order` has a word that began none so far, or less than a
// third of the current authority's life is left; one that has expired is switched at once, since
// nobody's certificate is valid. The caller then writes what the holders have to have.
absl::Status TakeStep(const AuthorityOrder& order, bool all_have_it, std::int64_t now_s,
                      Authority* authority);

// Whether this authority, the next one or one of before has signed the certificate.
bool HasSigned(const Authority& authority, const std::string& certificate);

// The bundle with what the phase needs and without what it has to lack; all others in it stay.
std::string BundleOf(const Authority& authority, std::string bundle);

}  // namespace switchyard::ctl
