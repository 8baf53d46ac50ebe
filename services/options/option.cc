#include "services/options/option.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/suggest.h"
#include "core/base/units.h"

namespace switchyard {
namespace {

// The parts that all options share; the caller sets `set` and `get`, and calls Done.
Option Make(OptionName name, std::string type) {
  Option option;
  option.flag =
      !name.flag.empty()
          ? std::move(name.flag)
          : absl::StrCat(
                "--", absl::StrReplaceAll(name.key.substr(name.key.find('.') + 1), {{"_", "-"}}));
  option.key = std::move(name.key);
  option.help = std::move(name.help);
  option.unset = std::move(name.unset);
  option.type = std::move(type);
  return option;
}

Option Done(Option option) {
  option.fallback = option.unset.empty() ? absl::StrJoin(option.get(), ",") : "";
  return option;
}

std::string Quoted(absl::string_view text, absl::string_view what) {
  return absl::StrCat("\"", text, "\" ", what);
}

// "a, b or c".
std::string OrText(const std::vector<std::string>& words) {
  if (words.size() < 2) return absl::StrJoin(words, "");
  return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "), " or ", words.back());
}

std::string CheckWord(const std::string& text, const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return "";
  const std::string near = NearestWord(text, words);
  return Quoted(text, absl::StrCat("is not one of ", OrText(words),
                                   near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

// An option whose variable is a whole number, in decimal or with a unit. `text` and `read` are each
// other's inverse.
struct NumberKind {
  const char* type;
  std::optional<std::int64_t> (*read)(absl::string_view);
  std::string (*text)(std::int64_t);
  std::string what;  // "is not an amount of bytes; examples: ..."
};

std::optional<std::int64_t> ReadInteger(absl::string_view text) {
  std::int64_t value = 0;
  // SimpleAtoi also accepts signs and spaces, which would be surprising in a file.
  const bool decimal = text.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!decimal || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

NumberKind IntegerKind() {
  return {"integer", &ReadInteger, [](std::int64_t value) { return absl::StrCat(value); },
          "is not a whole number"};
}
NumberKind BytesKind() {
  return {"bytes", &ParseBytes, &BytesText,
          absl::StrCat("is not an amount of bytes; examples: ", kBytesExamples)};
}
NumberKind DurationKind() {
  return {"duration",
          [](absl::string_view text) -> std::optional<std::int64_t> {
            const auto time = ParseDuration(text);
            return time ? std::optional<std::int64_t>(time->count()) : std::nullopt;
          },
          [](std::int64_t nanos) { return DurationText(Duration(nanos)); },
          absl::StrCat("is not a duration; examples: ", kDurationExamples)};
}

constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

std::string RangeText(const NumberKind& kind, IntegerRange range) {
  if (range.most == kNoEnd) return absl::StrCat("at least ", kind.text(range.least));
  return absl::StrCat("from ", kind.text(range.least), " to ", kind.text(range.most));
}

// `store` and `load` convert between the variable and the number.
Option NumberOption(OptionName name, NumberKind kind, IntegerRange range,
                    std::function<void(std::int64_t)> store,
                    std::function<std::optional<std::int64_t>()> load) {
  Option option = Make(std::move(name), kind.type);
  option.range = RangeText(kind, range);
  option.set = [kind, range, store](const std::vector<std::string>& texts) -> std::string {
    const std::string& text = texts.front();
    const auto value = kind.read(text);
    const bool negative = text.size() > 1 && text[0] == '-' && kind.read(text.substr(1));
    if (!value && !negative) return Quoted(text, kind.what);
    if (negative || *value < range.least || *value > range.most) {
      return Quoted(text, absl::StrCat("is out of range; give ", RangeText(kind, range)));
    }
    store(*value);
    return "";
  };
  option.get = [kind, load]() -> std::vector<std::string> {
    const auto value = load();
    if (!value) return {};
    return {kind.text(*value)};
  };
  return Done(std::move(option));
}

template <typename T>
Option NumberOptionOf(OptionName name, NumberKind kind, IntegerRange range, T* value) {
  return NumberOption(
      std::move(name), std::move(kind), range,
      [value](std::int64_t number) { *value = static_cast<T>(number); },
      [value] { return std::optional<std::int64_t>(static_cast<std::int64_t>(*value)); });
}

// "a,b" and two values mean the same.
std::vector<std::string> SplitAll(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const std::string& text : texts) {
    for (const absl::string_view part : absl::StrSplit(text, ',')) all.emplace_back(part);
  }
  return all;
}

}  // namespace

const Option* OptionTable::Find(absl::string_view key) const {
  for (const Option& option : options) {
    if (option.key == key) return &option;
  }
  return nullptr;
}

Option TextOption(OptionName name, std::string* value, TextCheck check) {
  Option option = Make(std::move(name), "text");
  option.set = [value, check](const std::vector<std::string>& texts) {
    std::string wrong = check == nullptr ? "" : check(texts.front());
    if (wrong.empty()) *value = texts.front();
    return wrong;
  };
  option.get = [value] {
    return value->empty() ? std::vector<std::string>{} : std::vector<std::string>{*value};
  };
  return Done(std::move(option));
}

Option OptionalTextOption(OptionName name, std::optional<std::string>* value) {
  Option option = Make(std::move(name), "text");
  option.set = [value](const std::vector<std::string>& texts) {
    *value = texts.front();
    return "";
  };
  option.get = [value] {
    return *value ? std::vector<std::string>{**value} : std::vector<std::string>{};
  };
  return Done(std::move(option));
}

Option WordOption(OptionName name, std::string* value, std::vector<std::string> words) {
  Option option = TextOption(std::move(name), value,
                             [words](const std::string& text) { return CheckWord(text, words); });
  option.range = OrText(words);
  return option;
}

Option WordListOption(OptionName name, std::vector<std::string>* value,
                      std::vector<std::string> words) {
  Option option = Make(std::move(name), "list");
  option.list = true;
  option.range = OrText(words);
  option.set = [value, words](const std::vector<std::string>& texts) -> std::string {
    const std::vector<std::string> all = SplitAll(texts);
    for (const std::string& text : all) {
      if (std::string wrong = CheckWord(text, words); !wrong.empty()) return wrong;
    }
    *value = all;
    return "";
  };
  option.get = [value] { return *value; };
  return Done(std::move(option));
}

Option FileListOption(OptionName name, std::vector<std::string>* value) {
  Option option = Make(std::move(name), "list");
  option.list = true;
  option.range = "paths of files";
  option.set = [value](const std::vector<std::string>& texts) {
    *value = texts;
    return "";
  };
  option.get = [value] { return *value; };
  option.in_file = &PathInFolder;
  return Done(std::move(option));
}

Option IntegerOption(OptionName name, int* value, IntegerRange range) {
  return NumberOptionOf(std::move(name), IntegerKind(), range, value);
}
Option IntegerOption(OptionName name, std::size_t* value, IntegerRange range) {
  return NumberOptionOf(std::move(name), IntegerKind(), range, value);
}
Option OptionalIntegerOption(OptionName name, std::optional<int>* value, IntegerRange range) {
  return NumberOption(
      std::move(name), IntegerKind(), range,
      [value](std::int64_t number) { *value = static_cast<int>(number); },
      [value]() -> std::optional<std::int64_t> {
        return *value ? std::optional<std::int64_t>(**value) : std::nullopt;
      });
}
Option RatioOption(OptionName name, double* value) {
  Option option = Make(std::move(name), "ratio");
  option.range = "from 0 to 1";
  option.set = [value](const std::vector<std::string>& texts) -> std::string {
    double ratio = 0;
    if (!absl::SimpleAtod(texts.front(), &ratio)) {
      return Quoted(texts.front(), "is not a number; examples: 0.01, 1");
    }
    // Not written as two comparisons: NaN is out of range too.
    if (!(ratio >= 0 && ratio <= 1)) {
      return Quoted(texts.front(), "is out of range; give a number from 0 to 1");
    }
    *value = ratio;
    return "";
  };
  option.get = [value] { return std::vector<std::string>{absl::StrFormat("%.9g", *value)}; };
  return Done(std::move(option));
}
Option BytesOption(OptionName name, std::int64_t* value, IntegerRange range) {
  return NumberOptionOf(std::move(name), BytesKind(), range, value);
}
Option BytesOption(OptionName name, std::size_t* value, IntegerRange range) {
  return NumberOptionOf(std::move(name), BytesKind(), range, value);
}
Option DurationOption(OptionName name, Duration* value, DurationRange range) {
  return NumberOption(
      std::move(name), DurationKind(), {range.least.count(), range.most.count()},
      [value](std::int64_t nanos) { *value = Duration(nanos); },
      [value] { return std::optional<std::int64_t>(value->count()); });
}

std::string PathInFolder(absl::string_view value, const std::string& folder) {
  if (value.empty() || value[0] == '/') return std::string(value);
  return (std::filesystem::path(folder) / std::string(value)).lexically_normal().string();
}

}  // namespace switchyard
