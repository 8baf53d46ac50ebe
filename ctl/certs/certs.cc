#include "ctl/certs/certs.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/certs/rotation.h"
#include "ctl/certs/secret_file.h"
#include "report/text_table.h"
#include "services/config/config_file.h"
#include "services/config/security_files.h"
#include "services/config/yaml_text.h"
#include "services/security/authority.h"
#include "services/security/certificate.h"

namespace switchyard::ctl {
namespace {

constexpr std::int64_t kDay = 86400;
constexpr char kAuthorityFolder[] = "authority";

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, what, {});
}

std::string Join(const std::string& folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// A holder of a certificate, and its roles as the file of identities has them.
struct Holder {
  std::string name;
  std::string id;
  std::string roles;
};

bool IsRole(absl::string_view word) {
  for (std::size_t i = 0; i < kRoleCount; ++i) {
    if (RoleName(static_cast<Role>(i)) == word) return true;
  }
  return false;
}

absl::StatusOr<Holder> ParseAlso(absl::string_view option, const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const std::vector<std::string> roles = absl::StrSplit(parts.second, ',');
  const bool known = std::all_of(roles.begin(), roles.end(), &IsRole);
  const bool plain = !parts.first.empty() && parts.first.find('/') == std::string::npos &&
                     parts.first[0] != '.' && parts.first != kAuthorityFolder;
  if (known && plain) return Holder{parts.first, "", absl::StrJoin(roles, ", ")};
  return Bad(
      absl::StrCat(option, " ", text,
                   ": needs NAME:ROLE, the name of a folder and coordinator, worker, source, "
                   "operator or observer; several roles with commas between"));
}

absl::StatusOr<std::string> IdOf(const CertsOptions& options, const std::string& domain,
                                 const std::string& name) {
  std::string id = absl::StrCat("spiffe://", domain, "/", options.prefix, name);
  const std::string wrong = ParseSpiffeId(id).wrong;
  if (!wrong.empty()) return Bad(absl::StrCat(id, " is no SPIFFE id: ", wrong));
  return id;
}

absl::StatusOr<std::vector<Holder>> HoldersOf(const CertsOptions& options,
                                              const std::string& domain) {
  std::vector<Holder> holders;
  for (std::size_t i = 0; i < kRoleCount; ++i) {
    const std::string role(RoleName(static_cast<Role>(i)));
    holders.push_back({role, "", role});
  }
  for (const std::string& each : options.also) {
    SY_ASSIGN_OR_RETURN(Holder holder, ParseAlso("--also", each));
    holders.push_back(std::move(holder));
  }
  for (Holder& each : holders) {
    SY_ASSIGN_OR_RETURN(each.id, IdOf(options, domain, each.name));
  }
  return holders;
}

// One of `certs issue`: with roles, or with those that the table has for its id.
absl::StatusOr<Holder> HolderOf(const CertsOptions& options, const std::string& identities) {
  SY_ASSIGN_OR_RETURN(const IdentityTable table, ReadIdentities(identities));
  const bool has_roles = options.holder.find(':') != std::string::npos;
  SY_ASSIGN_OR_RETURN(
      Holder holder,
      ParseAlso("certs issue", has_roles ? options.holder : options.holder + ":source"));
  SY_ASSIGN_OR_RETURN(holder.id, IdOf(options, table.trust_domain(), holder.name));
  if (has_roles || table.Find(holder.id) != nullptr) return holder;
  return MakeError(absl::StatusCode::kNotFound, Reason::kBadConfig,
                   absl::StrCat(identities, " has no ", holder.id,
                                "; say which roles it has: ", holder.name, ":source"),
                   {{"file", identities}});
}

// Adds those whose folders are there already, though the options do not name them any more, whose
// ids the table has and whose certificates are this authority's: a rotation must leave none of them
// behind, and what others have issued is not ours to replace.
absl::Status AddPresent(const CertsOptions& options, const std::string& identities,
                        const Authority& authority, std::vector<Holder>* holders) {
  if (!Exists(identities)) return absl::OkStatus();
  SY_ASSIGN_OR_RETURN(const IdentityTable table, ReadIdentities(identities));
  std::vector<Holder> present;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options.dir, error)) {
    const std::string name = entry.path().filename().string();
    const bool named = std::any_of(holders->begin(), holders->end(),
                                   [&](const Holder& each) { return each.name == name; });
    const TlsFiles files = TlsFilesIn(entry.path().string());
    if (named || !Exists(files.certificate)) continue;
    const absl::StatusOr<TlsMaterial> material = ReadTlsFiles(files);
    if (!material.ok()) continue;
    const absl::StatusOr<CertificateFacts> facts = CheckTlsMaterial(*material, files);
    if (!facts.ok() || table.Find(facts->id) == nullptr) continue;
    if (HasSigned(authority, material->certificate)) present.push_back({name, facts->id, ""});
  }
  std::sort(present.begin(), present.end(),
            [](const Holder& one, const Holder& other) { return one.name < other.name; });
  holders->insert(holders->end(), present.begin(), present.end());
  return absl::OkStatus();
}

// The trust domain of the identities that are there, which the option may repeat only.
absl::StatusOr<std::string> DomainOf(const CertsOptions& options, const std::string& identities) {
  if (!Exists(identities)) {
    if (!options.trust_domain.empty()) return options.trust_domain;
    return Bad("give --trust-domain: the name, of your own, that all ids begin with");
  }
  SY_ASSIGN_OR_RETURN(const IdentityTable table, ReadIdentities(identities));
  if (options.trust_domain.empty() || options.trust_domain == table.trust_domain()) {
    return table.trust_domain();
  }
  return Bad(absl::StrCat(identities, " is about trust domain ", table.trust_domain(), ", not ",
                          options.trust_domain));
}

// Adds rows for the holders that the file lacks; rows that are there stay as they are.
absl::StatusOr<std::string> EnsureIdentities(const std::string& path,
                                             const std::vector<Holder>& holders) {
  std::string text =
      "# Who has which roles. Written by 'syctl certs ensure', yours to change.\n"
      "identities:\n";
  std::optional<IdentityTable> table;
  if (Exists(path)) {
    SY_ASSIGN_OR_RETURN(text, ReadConfigBytes(path));
    SY_ASSIGN_OR_RETURN(table, ReadIdentities(path));
  }
  std::string added;
  for (const Holder& each : holders) {
    if (table && table->Find(each.id) != nullptr) continue;
    absl::StrAppend(&added, "- {id: ", each.id, ", roles: [", each.roles, "]}\n");
  }
  if (added.empty()) return text;
  if (text.back() != '\n') text += "\n";
  text += added;
  SY_RETURN_IF_ERROR(WriteFile(path, text, FileReaders::kEverybody));
  const absl::Status readable = ReadIdentities(path).status();
  if (readable.ok()) return text;
  return Bad(absl::StrCat("these lines do not fit the form of ", path, ", add them by hand:\n",
                          added, readable.message()));
}

// Makes the file what the authority's phase asks for.
absl::Status EnsureBundle(const std::string& path, const Authority& authority) {
  std::string bundle;
  if (Exists(path)) {
    SY_ASSIGN_OR_RETURN(bundle, ReadConfigBytes(path));
  }
  const std::string wanted = BundleOf(authority, bundle);
  if (wanted == bundle) return absl::OkStatus();
  return WriteFile(path, wanted, FileReaders::kEverybody);
}

// Whether the holder has what the phase asks for, so that its processes have had the time to see
// it once the phase has lasted. Nobody has a folder that is not there yet.
bool HasIt(const std::string& folder, const Authority& authority) {
  if (!Exists(folder)) return true;
  const absl::StatusOr<TlsMaterial> material = ReadTlsFiles(TlsFilesIn(folder));
  if (!material.ok() || BundleOf(authority, material->ca) != material->ca) return false;
  return authority.record.phase != AuthorityPhase::kSwitched ||
         CheckIssuer(material->certificate, authority.current.certificate).ok();
}

// The authority, in the phase that this run is about. Adds to the holders whoever has a certificate
// of it.
absl::StatusOr<Authority> EnsureAuthority(const CertsOptions& options, const std::string& domain,
                                          const std::string& identities, std::int64_t now_s,
                                          std::vector<Holder>* holders) {
  const AuthorityOrder order{.name = absl::StrCat("Switchyard ", domain).substr(0, 47),
                             .days = options.authority_days,
                             .word = options.rotate_authority};
  const std::string folder = Join(options.dir, kAuthorityFolder);
  SY_ASSIGN_OR_RETURN(Authority authority, OpenAuthority(folder, order));
  SY_RETURN_IF_ERROR(AddPresent(options, identities, authority, holders));
  const bool all_have_it = std::all_of(holders->begin(), holders->end(), [&](const Holder& holder) {
    return HasIt(Join(options.dir, holder.name), authority);
  });
  SY_RETURN_IF_ERROR(TakeStep(order, all_have_it, now_s, &authority));
  return authority;
}

// Whether a certificate that is there may stay.
bool IsGood(const std::string& folder, const Holder& holder, const KeyedCertificate& authority,
            std::int64_t least_until_s, CertificateFacts* facts) {
  const absl::StatusOr<TlsMaterial> material = ReadTlsFiles(TlsFilesIn(folder));
  if (!material.ok()) return false;
  const absl::StatusOr<CertificateFacts> read = CheckTlsMaterial(*material, TlsFilesIn(folder));
  if (!read.ok() || read->id != holder.id || read->not_after_s < least_until_s) return false;
  *facts = *read;
  return CheckIssuer(material->certificate, authority.certificate).ok();
}

// Writes what a folder has beside the certificate and its key.
absl::Status Prepare(const std::string& folder, const Authority& authority,
                     const std::string& identities) {
  SY_RETURN_IF_ERROR(MakeFolder(folder, FileReaders::kOwner));
  SY_RETURN_IF_ERROR(EnsureBundle(TlsFilesIn(folder).ca, authority));
  return WriteFile(Join(folder, kIdentitiesFile), identities, FileReaders::kEverybody);
}

absl::StatusOr<CertificateRow> IssueTo(const CertsOptions& options, const Holder& holder,
                                       const Authority& authority, const char* what) {
  const TlsFiles files = TlsFilesIn(Join(options.dir, holder.name));
  SY_ASSIGN_OR_RETURN(const KeyedCertificate leaf,
                      IssueCertificate(authority.current, holder.id, options.days));
  SY_RETURN_IF_ERROR(WriteFiles({{files.key, leaf.key, FileReaders::kOwner},
                                 {files.certificate, leaf.certificate, FileReaders::kEverybody}}));
  SY_ASSIGN_OR_RETURN(
      const CertificateFacts facts,
      CheckTlsMaterial({authority.current.certificate, leaf.certificate, leaf.key}, files));
  return CertificateRow{holder.name, holder.id, what, facts.not_after_s};
}

absl::StatusOr<CertificateRow> EnsureOne(const CertsOptions& options, const Holder& holder,
                                         const Authority& authority, const std::string& identities,
                                         std::int64_t now_s) {
  const std::string folder = Join(options.dir, holder.name);
  const bool there = Exists(TlsFilesIn(folder).certificate);
  SY_RETURN_IF_ERROR(Prepare(folder, authority, identities));
  CertificateFacts facts;
  const std::int64_t least_until_s = now_s + options.days * kDay / 3;
  if (there && IsGood(folder, holder, authority.current, least_until_s, &facts)) {
    return CertificateRow{holder.name, holder.id, "kept", facts.not_after_s};
  }
  return IssueTo(options, holder, authority, there ? "renewed" : "made");
}

absl::StatusOr<CertificateRow> ShowOne(const std::string& folder, std::int64_t now_s) {
  SY_ASSIGN_OR_RETURN(const TlsMaterial material, ReadTlsFiles(TlsFilesIn(folder)));
  SY_ASSIGN_OR_RETURN(const CertificateFacts facts, CheckTlsMaterial(material, TlsFilesIn(folder)));
  const char* what = facts.not_before_s > now_s   ? "not yet valid"
                     : facts.not_after_s <= now_s ? "expired"
                                                  : "valid";
  const std::string name = std::filesystem::path(folder).filename().string();
  return CertificateRow{name, facts.id, what, facts.not_after_s};
}

// The record and the chart's script have it in lines of their own.
std::string CheckWord(const std::string& word) {
  const bool good = word.size() <= 63 && std::all_of(word.begin(), word.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                             c == '_' || c == '.';
                    });
  return good ? "" : "needs at most 63 letters, digits, '-', '_' and '.'";
}

std::string TimeText(std::int64_t unix_s) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(unix_s), absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<CertificatesReport> EnsureCertificates(const CertsOptions& options,
                                                      std::int64_t now_s) {
  SY_RETURN_IF_ERROR(MakeFolder(options.dir, FileReaders::kEverybody));
  const std::string identities = Join(options.dir, kIdentitiesFile);
  SY_ASSIGN_OR_RETURN(const std::string domain, DomainOf(options, identities));
  SY_ASSIGN_OR_RETURN(std::vector<Holder> holders, HoldersOf(options, domain));
  const std::string folder = Join(options.dir, kAuthorityFolder);
  SY_RETURN_IF_ERROR(MakeFolder(folder, FileReaders::kOwner));
  SY_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(folder));
  SY_ASSIGN_OR_RETURN(const Authority authority,
                      EnsureAuthority(options, domain, identities, now_s, &holders));
  SY_ASSIGN_OR_RETURN(const std::string table, EnsureIdentities(identities, holders));
  CertificatesReport report{.rows = {}, .rotation = authority.record};
  for (const Holder& each : holders) {
    SY_ASSIGN_OR_RETURN(CertificateRow row, EnsureOne(options, each, authority, table, now_s));
    report.rows.push_back(std::move(row));
  }
  return report;
}

absl::StatusOr<CertificatesReport> IssueOneCertificate(const CertsOptions& options) {
  const std::string identities = Join(options.dir, kIdentitiesFile);
  const std::string folder = Join(options.dir, kAuthorityFolder);
  if (!Exists(identities) || !Exists(Join(folder, kCaFile))) {
    return MakeError(absl::StatusCode::kNotFound, Reason::kBadConfig,
                     absl::StrCat(options.dir, " has no authority; 'syctl certs ensure' makes one"),
                     {{"file", options.dir}});
  }
  SY_ASSIGN_OR_RETURN(const Holder holder, HolderOf(options, identities));
  SY_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(folder));
  SY_ASSIGN_OR_RETURN(const Authority authority, OpenAuthority(folder, AuthorityOrder()));
  SY_ASSIGN_OR_RETURN(const std::string table, EnsureIdentities(identities, {holder}));
  SY_RETURN_IF_ERROR(Prepare(Join(options.dir, holder.name), authority, table));
  SY_ASSIGN_OR_RETURN(CertificateRow row, IssueTo(options, holder, authority, "issued"));
  return CertificatesReport{.rows = {std::move(row)}, .rotation = authority.record};
}

absl::StatusOr<CertificatesReport> ShowCertificates(const std::string& dir, std::int64_t now_s) {
  std::vector<std::string> folders;
  if (Exists(Join(dir, kCertificateFile))) folders.push_back(dir);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (Exists(Join(entry.path().string(), kCertificateFile))) {
      folders.push_back(entry.path().string());
    }
  }
  if (folders.empty()) {
    return MakeError(absl::StatusCode::kNotFound, Reason::kBadConfig,
                     absl::StrCat(dir, " has no ", kCertificateFile,
                                  ", nor has a folder in it; 'syctl certs ensure' makes them"),
                     {{"file", dir}});
  }
  std::sort(folders.begin(), folders.end());
  CertificatesReport report;
  for (const std::string& folder : folders) {
    SY_ASSIGN_OR_RETURN(CertificateRow row, ShowOne(folder, now_s));
    report.rows.push_back(std::move(row));
  }
  SY_ASSIGN_OR_RETURN(report.rotation, ReadRecord(Join(dir, kAuthorityFolder)));
  return report;
}

std::string CertificatesText(const CertificatesReport& report, std::int64_t now_s) {
  TextTable table({"NAME", "STATE", "UNTIL", "DAYS", "ID"});
  for (const CertificateRow& row : report.rows) {
    table.Add({row.name, row.what, TimeText(row.not_after_s),
               absl::StrCat((row.not_after_s - now_s) / kDay), row.id});
  }
  const std::string rotation = RotationText(report.rotation, now_s);
  return absl::StrCat(table.Print(), rotation.empty() ? "" : "\n", rotation);
}

nlohmann::ordered_json CertificatesJson(const CertificatesReport& report, std::int64_t now_s) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CertificateRow& row : report.rows) {
    list.push_back({{"name", row.name},
                    {"id", row.id},
                    {"state", row.what},
                    {"until", TimeText(row.not_after_s)}});
  }
  const RotationRecord& record = report.rotation;
  nlohmann::ordered_json authority = {{"phase", std::string(PhaseName(record.phase))}};
  if (record.since_s != 0) authority["since"] = TimeText(record.since_s);
  if (!record.words.empty()) authority["word"] = record.words.back();
  if (record.phase != AuthorityPhase::kSettled) {
    authority["wait_seconds"] = SecondsToWait(record, now_s);
  }
  return {{"certificates", std::move(list)}, {"authority", std::move(authority)}};
}

void AddCertsVerb(CLI::App& app, CertsOptions* options) {
  CLI::App* verb = app.add_subcommand(
      "certs", "Make and show certificates for mutual TLS; needs no coordinator");
  verb->require_subcommand(1);
  verb->footer("Example:\n  syctl certs ensure certs --trust-domain moe.example\n");
  CLI::App* ensure = verb->add_subcommand(
      "ensure", "Make an authority and a certificate for each role, where they are missing or end");
  ensure->add_option("DIR", options->dir, "Folder of all of them")->required();
  ensure->add_option("--trust-domain", options->trust_domain,
                     "What all ids begin with: a name of your own, for example moe.example");
  ensure->add_option("--prefix", options->prefix, "Between trust domain and name of each id");
  ensure->add_option("--also", options->also,
                     "NAME:ROLE, one more certificate; several roles with commas between");
  ensure->add_option("--days", options->days, "How long certificates are valid")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{3650}))
      ->capture_default_str();
  ensure->add_option("--authority-days", options->authority_days, "How long the authority's is")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{36500}))
      ->capture_default_str();
  ensure
      ->add_option("--rotate-authority", options->rotate_authority,
                   "WORD: replace the authority, once for each word, such as a date; each further "
                   "run goes one step on")
      ->check(CheckWord);
  ensure->footer(
      "Give each process its folder as --tls-dir. Run it again to renew what has less than a "
      "third\n"
      "of its days to go; processes see new files by themselves.\n"
      "Examples:\n"
      "  syctl certs ensure certs --trust-domain moe.example\n"
      "  syctl certs ensure certs --also engine-a:source\n"
      "  syctl certs ensure certs --rotate-authority 2027-01\n");
  CLI::App* issue =
      verb->add_subcommand("issue", "Make one certificate anew, for a holder more or a lost key");
  issue->add_option("DIR", options->dir, "Folder of all of them, with its authority")->required();
  issue
      ->add_option("NAME", options->holder,
                   "NAME:ROLE, several roles with commas between; NAME alone where it is known")
      ->required();
  issue->add_option("--prefix", options->prefix, "Between trust domain and name of its id");
  issue->add_option("--days", options->days, "How long it is valid")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{3650}))
      ->capture_default_str();
  issue->callback([options] { options->verb = CertsOptions::Verb::kIssue; });
  issue->footer(
      "A certificate that was replaced stays valid until it ends; to shut out whoever has its "
      "key,\n"
      "give the holder another name and remove the old id from the identities.\n"
      "Example:\n  syctl certs issue certs engine-b:source\n");
  CLI::App* show = verb->add_subcommand("show", "Show certificates, and how long they are valid");
  show->add_option("DIR", options->dir, "A --tls-dir, or a folder of them")->required();
  show->callback([options] { options->verb = CertsOptions::Verb::kShow; });
}

}  // namespace switchyard::ctl
