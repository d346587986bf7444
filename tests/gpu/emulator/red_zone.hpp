#pragma once

#include <cstddef>

namespace emulated {

/// Returns memory for `bytes`, aligned to 256, with a red zone on each side.
char* make_with_red_zones(std::size_t bytes);
void destroy_with_red_zones(char* data);

/// Ends the process if something wrote into the red zones.
void check_red_zones(char* data, std::size_t bytes);

}  // namespace emulated
