#pragma once

namespace lockstep {

/// The project's version; meson.build says the same.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace lockstep
