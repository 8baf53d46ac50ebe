// CRC32C (Castagnoli), as of RFC 3720: the two ways in which Crc32c of frame.h is computed.
// Here so that tests compare them; everyone else includes frame.h. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace switchyard {

// A byte at a time from a table; runs anywhere.
std::uint32_t Crc32cTable(std::uint32_t crc, std::span<const std::byte> data);

// Whether this CPU has the instruction (SSE4.2).
bool HasCrc32cInstruction();
// By the instruction, eight bytes at a time. REQUIRES: HasCrc32cInstruction().
std::uint32_t Crc32cInstruction(std::uint32_t crc, std::span<const std::byte> data);

}  // namespace switchyard
