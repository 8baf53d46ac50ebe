// Roles are what callers may be. A certificate's id has one or several (identity_table.h); access.h
// says which calls each may make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "absl/strings/string_view.h"

namespace switchyard {

enum class Role : std::uint8_t {
  kCoordinator = 0,
  kWorker = 1,    // joins, and opens sessions for the callers of its gateway
  kSource = 2,    // an engine: opens sessions and makes steps
  kOperator = 3,  // changes what is served, and sees it
  kObserver = 4,  // sees what is served
};
inline constexpr std::size_t kRoleCount = 5;
// "coordinator", "worker", "source", "operator", "observer".
absl::string_view RoleName(Role role);

// A set of roles. Plain data.
class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }
  constexpr void Add(Role role) { bits_ = static_cast<std::uint8_t>(bits_ | Bit(role)); }
  [[nodiscard]] constexpr Roles Without(Role role) const {
    Roles rest = *this;
    rest.bits_ = static_cast<std::uint8_t>(bits_ & ~Bit(role));
    return rest;
  }
  [[nodiscard]] constexpr bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  [[nodiscard]] constexpr bool Meets(Roles other) const { return (bits_ & other.bits_) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  friend bool operator==(const Roles&, const Roles&) = default;

 private:
  static constexpr std::uint8_t Bit(Role role) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(role));
  }
  std::uint8_t bits_ = 0;
};

}  // namespace switchyard
