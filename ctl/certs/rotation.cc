#include "ctl/certs/rotation.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/certs/secret_file.h"
#include "services/config/security_files.h"
#include "services/config/yaml_text.h"
#include "services/security/certificate.h"

namespace switchyard::ctl {
namespace {

constexpr char kAuthorityKeyFile[] = "ca.key";
constexpr char kNextFile[] = "next.crt";
constexpr char kNextKeyFile[] = "next.key";
constexpr char kPreviousFile[] = "previous.crt";
constexpr char kRecordFile[] = "rotation.yaml";
constexpr char kTimeForm[] = "%Y-%m-%dT%H:%M:%SZ";
// Stands between two authorities in previous.crt. Readers of PEM skip it.
constexpr char kBefore[] = "# before it:\n";
constexpr std::size_t kPreviousMax = 16;
constexpr std::int64_t kLastSecond = 253402300799;  // of the year 9999

std::string Join(const std::string& folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

void Remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
}

std::string TimeText(std::int64_t unix_s) {
  return absl::FormatTime(kTimeForm, absl::FromUnixSeconds(unix_s), absl::UTCTimeZone());
}

absl::Status BadRecord(const std::string& path, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat(path, ": ", what, "; put the file back"), {{"file", path}});
}

std::string WrongLine(absl::string_view line) {
  return absl::StrCat("\"", line,
                      "\" is none of 'phase: settled, announced or switched', 'since: "
                      "2026-01-31T12:00:00Z' and 'word: WORD'");
}

bool ParsePhase(absl::string_view text, AuthorityPhase* phase) {
  for (const AuthorityPhase each :
       {AuthorityPhase::kSettled, AuthorityPhase::kAnnounced, AuthorityPhase::kSwitched}) {
    if (PhaseName(each) != text) continue;
    *phase = each;
    return true;
  }
  return false;
}

bool ParseLine(absl::string_view line, RotationRecord* record) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 1));
  if (parts.first == "phase") return ParsePhase(parts.second, &record->phase);
  if (parts.first == "word") {
    record->words.push_back(parts.second);
    return record->words.size() <= kWordsMax;
  }
  absl::Time since;
  if (parts.first != "since" || !absl::ParseTime(kTimeForm, parts.second, &since, nullptr)) {
    return false;
  }
  record->since_s = absl::ToUnixSeconds(since);
  return record->since_s > 0 && record->since_s <= kLastSecond;
}

void AddWord(const std::string& word, RotationRecord* record) {
  if (word.empty()) return;
  record->words.push_back(word);
  if (record->words.size() > kWordsMax) record->words.erase(record->words.begin());
}

absl::Status WriteRecord(const Authority& authority) {
  const RotationRecord& record = authority.record;
  std::string text = absl::StrCat("phase: ", PhaseName(record.phase), "\n");
  if (record.since_s != 0) absl::StrAppend(&text, "since: ", TimeText(record.since_s), "\n");
  for (const std::string& word : record.words) absl::StrAppend(&text, "word: ", word, "\n");
  return WriteFile(Join(authority.folder, kRecordFile), text, FileReaders::kEverybody);
}

absl::StatusOr<KeyedCertificate> ReadPair(const std::string& folder, absl::string_view certificate,
                                          absl::string_view key) {
  const std::string file = Join(folder, certificate);
  SY_ASSIGN_OR_RETURN(TlsMaterial read,
                      ReadTlsFiles({.ca = file, .certificate = file, .key = Join(folder, key)}));
  return KeyedCertificate{std::move(read.certificate), std::move(read.key)};
}

absl::Status WritePair(const std::string& folder, absl::string_view certificate,
                       absl::string_view key, const KeyedCertificate& pair) {
  return WriteFiles({{Join(folder, key), pair.key, FileReaders::kOwner},
                     {Join(folder, certificate), pair.certificate, FileReaders::kEverybody}});
}

// Issuing fails for a pair that does not belong together.
absl::Status CheckNext(const Authority& authority) {
  const absl::Status tried = IssueCertificate(authority.next, "spiffe://check/pair", 1).status();
  if (tried.ok()) return tried;
  const std::string file = Join(authority.folder, kNextFile);
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat(file, " and ", kNextKeyFile, ": ", tried.message(),
                                "; put both back as one run made them"),
                   {{"file", file}});
}

void RemoveNext(const std::string& folder) {
  Remove(Join(folder, kNextFile));  // first, because it says whether the pair is there
  Remove(Join(folder, kNextKeyFile));
}

// Puts the next authority in the place of the current one, once the record says so.
absl::Status FinishSwitch(Authority* authority) {
  SY_RETURN_IF_ERROR(WritePair(authority->folder, kCaFile, kAuthorityKeyFile, authority->next));
  RemoveNext(authority->folder);
  authority->current = std::exchange(authority->next, {});
  return absl::OkStatus();
}

absl::Status Announce(const AuthorityOrder& order, Authority* authority) {
  SY_ASSIGN_OR_RETURN(authority->next, MakeAuthority(order.name, order.days));
  SY_RETURN_IF_ERROR(WritePair(authority->folder, kNextFile, kNextKeyFile, authority->next));
  authority->record.phase = AuthorityPhase::kAnnounced;
  AddWord(order.word, &authority->record);
  return WriteRecord(*authority);
}

absl::Status Switch(Authority* authority) {
  std::vector<std::string>& previous = authority->previous;
  // A run that ended here has written it already.
  if (previous.empty() || previous.front() != authority->current.certificate) {
    previous.insert(previous.begin(), authority->current.certificate);
    previous.resize(std::min(previous.size(), kPreviousMax));
    SY_RETURN_IF_ERROR(WriteFile(Join(authority->folder, kPreviousFile),
                                 absl::StrJoin(previous, kBefore), FileReaders::kEverybody));
  }
  authority->record.phase = AuthorityPhase::kSwitched;
  SY_RETURN_IF_ERROR(WriteRecord(*authority));
  return FinishSwitch(authority);
}

bool IsWanted(const AuthorityOrder& order, const Authority& authority, const Validity& life,
              std::int64_t now_s) {
  const std::vector<std::string>& words = authority.record.words;
  const bool is_new = std::find(words.begin(), words.end(), order.word) == words.end();
  if (!order.word.empty() && is_new) return true;
  return (life.not_after_s - now_s) * 3 < life.not_after_s - life.not_before_s;
}

absl::StatusOr<Validity> LifeOf(const Authority& authority) {
  absl::StatusOr<Validity> life = ValidityOf(authority.current.certificate);
  if (life.ok()) return life;
  const std::string file = Join(authority.folder, kCaFile);
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat(file, ": ", life.status().message(), "; put it back"),
                   {{"file", file}});
}

// An authority where there is none. Files of a rotation without the authority that they are of are
// somebody's loss, which another authority would hide.
absl::StatusOr<Authority> MakeFirst(const AuthorityOrder& order, Authority out) {
  for (const char* file : {kNextFile, kNextKeyFile, kPreviousFile}) {
    if (!Exists(Join(out.folder, file))) continue;
    const std::string missing = Join(out.folder, kCaFile);
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                     absl::StrCat(missing, " is missing, but ", file, " is there; put it back, or ",
                                  "remove the folder to make everything anew"),
                     {{"file", missing}});
  }
  AddWord(order.word, &out.record);
  if (!order.word.empty()) SY_RETURN_IF_ERROR(WriteRecord(out));
  SY_ASSIGN_OR_RETURN(out.current, MakeAuthority(order.name, order.days));
  SY_RETURN_IF_ERROR(WritePair(out.folder, kCaFile, kAuthorityKeyFile, out.current));
  return out;
}

void AddTo(std::string* bundle, const std::string& certificate) {
  if (absl::StrContains(*bundle, certificate)) return;
  if (!bundle->empty() && bundle->back() != '\n') *bundle += "\n";
  *bundle += certificate;
}

}  // namespace

absl::string_view PhaseName(AuthorityPhase phase) {
  switch (phase) {
    case AuthorityPhase::kSettled:
      return "settled";
    case AuthorityPhase::kAnnounced:
      return "announced";
    case AuthorityPhase::kSwitched:
      return "switched";
  }
  return "";
}

std::int64_t SecondsToWait(const RotationRecord& record, std::int64_t now_s) {
  if (record.phase == AuthorityPhase::kSettled) return 0;
  return std::max(record.since_s + kPhaseSeconds - now_s, std::int64_t{0});
}

std::string RotationText(const RotationRecord& record, std::int64_t now_s) {
  if (record.since_s == 0) return "";
  const std::string since = TimeText(record.since_s);
  if (record.phase == AuthorityPhase::kSettled) {
    return absl::StrCat("The authority was replaced at ", since,
                        "; no ca.crt here has one of before. Whoever has copies needs the new "
                        "ones.\n");
  }
  const std::int64_t wait_s = SecondsToWait(record, now_s);
  const std::string again = absl::StrCat(
      "When every process has its new files, ",
      wait_s > 0 ? absl::StrCat("in ", wait_s, " s or later, ") : "", "run 'syctl certs ensure' ");
  if (record.phase == AuthorityPhase::kAnnounced) {
    return absl::StrCat("The next authority is announced, since ", since,
                        ": every ca.crt has it too. ", again,
                        "again: it then issues certificates from the next authority.\n");
  }
  return absl::StrCat("The authority is switched, since ", since,
                      ": certificates are of the new one, every ca.crt has both. ", again,
                      "again: it then ends the trust in the old one.\n");
}

absl::StatusOr<RotationRecord> ReadRecord(const std::string& folder) {
  const std::string path = Join(folder, kRecordFile);
  RotationRecord record;
  if (!Exists(path)) return record;
  SY_ASSIGN_OR_RETURN(const std::string text, ReadConfigBytes(path));
  bool has_phase = false;
  for (const absl::string_view each : absl::StrSplit(text, '\n')) {
    const absl::string_view line = absl::StripTrailingAsciiWhitespace(each);
    if (!line.empty() && !ParseLine(line, &record)) return BadRecord(path, WrongLine(line));
    has_phase = has_phase || absl::StartsWith(line, "phase: ");
  }
  // A damaged record must not end the trust in an authority.
  const bool waits = record.phase != AuthorityPhase::kSettled;
  if (!has_phase) return BadRecord(path, "it has no phase");
  if (waits && record.since_s == 0) return BadRecord(path, "it says no time since when");
  return record;
}

absl::StatusOr<Authority> OpenAuthority(const std::string& folder, const AuthorityOrder& order) {
  Authority out;
  out.folder = folder;
  if (!Exists(Join(folder, kCaFile))) return MakeFirst(order, std::move(out));
  SY_ASSIGN_OR_RETURN(out.record, ReadRecord(folder));
  SY_ASSIGN_OR_RETURN(out.current, ReadPair(folder, kCaFile, kAuthorityKeyFile));
  const std::string previous = Join(folder, kPreviousFile);
  if (out.record.phase == AuthorityPhase::kSwitched || Exists(previous)) {
    SY_ASSIGN_OR_RETURN(const std::string text, ReadConfigBytes(previous));
    out.previous = absl::StrSplit(text, kBefore, absl::SkipEmpty());
    if (out.previous.empty()) {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                       absl::StrCat(previous, " is empty; put it back"), {{"file", previous}});
    }
  }
  const bool announced = out.record.phase == AuthorityPhase::kAnnounced;
  const bool half_switched =
      out.record.phase == AuthorityPhase::kSwitched && Exists(Join(folder, kNextFile));
  if (announced || half_switched) {
    SY_ASSIGN_OR_RETURN(out.next, ReadPair(folder, kNextFile, kNextKeyFile));
    SY_RETURN_IF_ERROR(CheckNext(out));
  }
  if (half_switched) SY_RETURN_IF_ERROR(FinishSwitch(&out));
  if (!announced) RemoveNext(folder);
  return out;
}

absl::Status TakeStep(const AuthorityOrder& order, bool all_have_it, std::int64_t now_s,
                      Authority* authority) {
  RotationRecord& record = authority->record;
  SY_ASSIGN_OR_RETURN(const Validity life, LifeOf(*authority));
  const bool expired = life.not_after_s <= now_s;
  if (record.phase == AuthorityPhase::kSettled) {
    if (!IsWanted(order, *authority, life, now_s)) return absl::OkStatus();
    record.since_s = now_s;
    SY_RETURN_IF_ERROR(Announce(order, authority));
    return expired ? Switch(authority) : absl::OkStatus();
  }
  if (expired && record.phase == AuthorityPhase::kAnnounced) {
    record.since_s = now_s;
    return Switch(authority);
  }
  if (!all_have_it || record.since_s > now_s) {
    record.since_s = now_s;
    return WriteRecord(*authority);
  }
  if (SecondsToWait(record, now_s) > 0) return absl::OkStatus();
  record.since_s = now_s;
  if (record.phase == AuthorityPhase::kAnnounced) return Switch(authority);
  record.phase = AuthorityPhase::kSettled;
  return WriteRecord(*authority);
}

bool HasSigned(const Authority& authority, const std::string& certificate) {
  const auto by = [&](const std::string& issuer) { return CheckIssuer(certificate, issuer).ok(); };
  return by(authority.current.certificate) || by(authority.next.certificate) ||
         std::any_of(authority.previous.begin(), authority.previous.end(), by);
}

std::string BundleOf(const Authority& authority, std::string bundle) {
  std::vector<std::string> trusted = {authority.current.certificate};
  if (authority.record.phase == AuthorityPhase::kAnnounced) {
    trusted.push_back(authority.next.certificate);
  } else if (authority.record.phase == AuthorityPhase::kSwitched) {
    trusted.push_back(authority.previous.front());
  }
  for (const std::string& each : authority.previous) {
    if (std::find(trusted.begin(), trusted.end(), each) != trusted.end()) continue;
    absl::StrReplaceAll({{each, ""}}, &bundle);
  }
  for (const std::string& each : trusted) AddTo(&bundle, each);
  return bundle;
}

}  // namespace switchyard::ctl
