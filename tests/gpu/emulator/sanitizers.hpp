#pragma once

// Informs AddressSanitizer and ThreadSanitizer; does nothing in builds without them.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATED_WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATED_WITH_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define EMULATED_WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMULATED_WITH_TSAN 1
#endif
#endif

#ifdef EMULATED_WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMULATED_WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace emulated {

/// Forbids any use of this memory until unforbid().
inline void forbid([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef EMULATED_WITH_ASAN
    __asan_poison_memory_region(data, bytes);
#endif
}

inline void unforbid([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef EMULATED_WITH_ASAN
    __asan_unpoison_memory_region(data, bytes);
#endif
}

#ifdef EMULATED_WITH_TSAN
inline constexpr bool kWithTsan = true;
#else
inline constexpr bool kWithTsan = false;
#endif

}  // namespace emulated
