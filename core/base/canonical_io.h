// Canonical bytes: integers little-endian and fixed width, strings and lists with a u32 length
// before them. One walk over a structure serves both directions, so that they cannot drift apart:
//
//   template <typename Io, typename T> void Walk(Io& io, T& thing) {
//     io.String(thing.name);
//     io.ForEach(thing.items, [&io](auto& item) { io.Int(item.value); });
//   }
//   CanonicalWriter writer; Walk(writer, thing); std::string bytes = writer.Take();
//   CanonicalReader reader(bytes); Walk(reader, thing); if (!reader.ok()) ...
//
// A reader accepts untrusted bytes: it never reads outside of them, never allocates much more than
// their size, and reads zeros after the first fault.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace switchyard {

// Appends to a growing string. Not thread-safe; one writer for one structure.
class CanonicalWriter {
 public:
  // Integers and enumerators.
  template <typename T>
  void Int(const T& value) {
    // Byte by byte and not memcpy, so that the bytes are the same on every machine.
    auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out_ += static_cast<char>(bits & 0xffU);
      bits >>= 8;
    }
  }
  // The bits of the number, so that NaN payloads and -0 survive.
  void Float(float value) { Int(std::bit_cast<std::uint32_t>(value)); }
  // At most 2^32 - 1 bytes; names and lists of a plan are far below.
  void String(const std::string& text) {
    Int(static_cast<std::uint32_t>(text.size()));
    out_ += text;
  }
  // A digest has a fixed size, so no length precedes it.
  void Raw(const std::array<std::uint8_t, 32>& bytes) {
    out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  template <typename List, typename Each>
  void ForEach(const List& list, Each each) {
    Int(static_cast<std::uint32_t>(list.size()));
    for (const auto& item : list) each(item);
  }
  // Call once, last.
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what CanonicalWriter wrote, by the same calls in the same order. After the first fault
// every read gives zeros, so a walk needs no check between its fields; `ok` at the end covers all
// of them.
class CanonicalReader {
 public:
  // `in` must outlive the reader.
  explicit CanonicalReader(absl::string_view in) : in_(in) {}

  template <typename T>
  void Int(T& value) {
    if (in_.size() < sizeof(T)) return Fail();
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(in_[i])) << (8 * i);
    }
    value = static_cast<T>(bits);
    in_.remove_prefix(sizeof(T));
  }
  // Any bits are accepted; a caller that needs a finite number checks it.
  void Float(float& value) {
    std::uint32_t bits = 0;
    Int(bits);
    value = std::bit_cast<float>(bits);
  }
  void String(std::string& text) {
    std::uint32_t size = 0;
    Int(size);
    // The length is checked before the copy: a forged one must not allocate.
    if (failed_ || in_.size() < size) return Fail();
    text = std::string(in_.substr(0, size));
    in_.remove_prefix(size);
  }
  void Raw(std::array<std::uint8_t, 32>& bytes) {
    if (in_.size() < bytes.size()) return Fail();
    std::memcpy(bytes.data(), in_.data(), bytes.size());
    in_.remove_prefix(bytes.size());
  }
  template <typename List, typename Each>
  void ForEach(List& list, Each each) {
    std::uint32_t size = 0;
    Int(size);
    if (failed_ || size > in_.size()) return Fail();  // every item takes a byte at least
    // `size` is at most the number of bytes left, so a forged length costs memory in proportion to
    // the input only.
    list.resize(size);
    for (auto& item : list) {
      if (failed_) return;
      each(item);
    }
  }
  // True when every byte was read and none was missing.
  [[nodiscard]] bool ok() const { return !failed_ && in_.empty(); }

 private:
  // Empties the input, so that every later read fails by its own length check.
  void Fail() {
    failed_ = true;
    in_ = {};
  }
  absl::string_view in_;
  bool failed_ = false;
};

}  // namespace switchyard
