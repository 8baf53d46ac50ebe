// CRC32C (Castagnoli, RFC 3720): the two implementations behind Crc32c of frame.h. They are public
// only for tests that compare them; other code includes frame.h. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace switchyard {

// Uses a table, one byte at a time; runs on every CPU.
std::uint32_t Crc32cTable(std::uint32_t crc, std::span<const std::byte> data);

// Whether this CPU has the instruction (SSE4.2).
bool HasCrc32cInstruction();
// Uses the instruction, eight bytes at a time. REQUIRES: HasCrc32cInstruction().
std::uint32_t Crc32cInstruction(std::uint32_t crc, std::span<const std::byte> data);

}  // namespace switchyard
