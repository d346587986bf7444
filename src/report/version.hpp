#pragma once

namespace lockstep {

/// The project's version, from meson.build.
extern const char* const kVersion;

}  // namespace lockstep
