#pragma once

namespace lockstep {

/// The project's version, which meson.build says.
extern const char* const kVersion;

}  // namespace lockstep
