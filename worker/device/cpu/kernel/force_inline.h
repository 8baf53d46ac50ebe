// SY_FORCE_INLINE: for functions in headers of files that are compiled for newer instruction sets.
// A copy that is not inlined could be linked into code for an older one.
#pragma once

#define SY_FORCE_INLINE static inline __attribute__((always_inline))
