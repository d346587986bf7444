#pragma once

#include <cstddef>

namespace emulated {

/// Memory for `bytes`, aligned to 256, with a red zone on either side.
char* make_with_red_zones(std::size_t bytes);
void destroy_with_red_zones(char* data);

/// Ends the process where something wrote into the red zones.
void check_red_zones(char* data, std::size_t bytes);

}  // namespace emulated
