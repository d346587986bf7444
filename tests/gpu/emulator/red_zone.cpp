#include "tests/gpu/emulator/red_zone.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/gpu/emulator/sanitizers.hpp"
#include "tests/gpu/emulator/settings.hpp"

namespace emulated {

namespace {

constexpr std::size_t kZone = 256;
constexpr char kPattern = '\xa5';

void check_zone(char* zone, std::ptrdiff_t from_data, std::size_t bytes) {
    unforbid(zone, kZone);
    for (std::size_t i = 0; i < kZone; ++i)
        if (zone[i] != kPattern)
            die("byte " + std::to_string(from_data + static_cast<std::ptrdiff_t>(i)) +
                " of device memory of " + std::to_string(bytes) +
                " bytes was written, which is outside it");
    forbid(zone, kZone);
}

}  // namespace

char* make_with_red_zones(std::size_t bytes) {
    const std::size_t total = (bytes + 2 * kZone + 255) / 256 * 256;
    auto* zone = static_cast<char*>(std::aligned_alloc(256, total));
    if (zone == nullptr) die("this machine has no memory left");
    std::memset(zone, kPattern, kZone);
    std::memset(zone + kZone + bytes, kPattern, kZone);
    forbid(zone, kZone);
    forbid(zone + kZone + bytes, kZone);
    return zone + kZone;
}

void destroy_with_red_zones(char* data) {
    std::free(data - kZone);
}

void check_red_zones(char* data, std::size_t bytes) {
    check_zone(data - kZone, -static_cast<std::ptrdiff_t>(kZone), bytes);
    check_zone(data + bytes, static_cast<std::ptrdiff_t>(bytes), bytes);
}

}  // namespace emulated
