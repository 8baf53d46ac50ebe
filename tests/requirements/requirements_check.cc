// requirements_check [--require-all] REQUIREMENTS.md requirements.tsv junit.xml
// Exit 0 when every listed test ran and passed; with --require-all also only when every requirement
// that the page does not leave open is listed. 2 when it could not check.

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"

#include "tests/requirements/requirements.h"

namespace {

bool Read(const std::string& path, std::string* text) {
  std::ifstream in(path);
  text->assign(std::istreambuf_iterator<char>(in), {});
  if (!in.is_open()) std::cerr << "requirements: cannot read " << path << "\n";
  return in.is_open();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files(argv + 1, argv + argc);
  const bool require_all = !files.empty() && files[0] == "--require-all";
  if (require_all) files.erase(files.begin());
  std::string page;
  std::string table;
  std::string junit;
  if (files.size() != 3) {
    std::cerr << "usage: requirements_check [--require-all] REQUIREMENTS.md requirements.tsv "
                 "junit.xml\n";
    return 2;
  }
  if (!Read(files[0], &page) || !Read(files[1], &table) || !Read(files[2], &junit)) return 2;

  const auto rows = switchyard::requirements::ParseRequirements(table);
  const auto run = switchyard::requirements::ParseJunit(junit);
  if (!rows.ok() || !run.ok()) {
    std::cerr << "requirements: " << (rows.ok() ? run.status() : rows.status()).message() << "\n";
    return 2;
  }
  const auto wanted = switchyard::requirements::WantedOf(page);
  if (wanted.empty()) {
    std::cerr << "requirements: " << files[0] << " has no table of requirements\n";
    return 2;
  }
  const auto report = switchyard::requirements::Check(*rows, wanted, *run);
  for (const std::string& problem : report.problems)
    std::cerr << "requirements: " << problem << "\n";
  if (!report.missing.empty()) {
    std::cerr << "requirements: no test listed for " << absl::StrJoin(report.missing, " ") << "\n";
  }
  const auto served = std::count_if(rows->begin(), rows->end(), [](const auto& row) {
    return row.use == switchyard::requirements::Use::kServed;
  });
  std::cerr << "requirements: " << rows->size() << " listed, " << served << " of them served, "
            << report.problems.size() << " problems\n";
  return report.problems.empty() && (report.missing.empty() || !require_all) ? 0 : 1;
}
