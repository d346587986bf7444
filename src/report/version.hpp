#pragma once

namespace lockstep {

/// Of the project; meson.build says the same.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace lockstep
