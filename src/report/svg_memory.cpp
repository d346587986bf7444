#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "src/report/svg_parts.hpp"
#include "src/report/timeline_look.hpp"

namespace lockstep {

namespace {

using Bytes = std::array<std::int64_t, kMemoryCategories>;

/// What was in use from column `x` on.
struct Level {
    std::int64_t x;
    Bytes bytes;
};

std::int64_t total(const Bytes& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

/// At most two levels for each pixel column: the highest in it, and the last.
std::vector<Level> levels_of(const std::vector<TraceMemory>& trace,
                             const SvgScale& scale) {
    std::vector<Level> levels;
    Bytes last{};
    for (const TraceMemory& level : trace) {
        const auto x = static_cast<std::int64_t>(scale.x(level.time));
        if (levels.empty() || levels.back().x != x) {
            if (!levels.empty()) levels.push_back({levels.back().x + 1, last});
            if (levels.empty() || levels.back().x != x)
                levels.push_back({x, level.bytes});
            else
                levels.back().bytes = level.bytes;
        } else if (total(level.bytes) > total(levels.back().bytes)) {
            levels.back().bytes = level.bytes;
        }
        last = level.bytes;
    }
    if (!levels.empty()) levels.push_back({levels.back().x + 1, last});
    return levels;
}

/// Bytes of the first `categories` categories.
std::int64_t stacked(const Bytes& bytes, int categories) {
    return std::accumulate(bytes.begin(), bytes.begin() + categories, std::int64_t{0});
}

}  // namespace

std::string svg_memory(const std::vector<TraceMemory>& trace, const SvgScale& scale,
                       Picoseconds end, double top, double height, std::int64_t most) {
    const std::vector<Level> levels = levels_of(trace, scale);
    if (levels.empty()) return "";
    const double right = scale.x(end);
    const double bottom = top + height;
    const double pixels = height / static_cast<double>(std::max<std::int64_t>(most, 1));
    std::string svg;
    // The whole stack first, then without its upper layer, and so on: each covers the one
    // before.
    for (int categories = kMemoryCategories; categories > 0; --categories) {
        const auto category = static_cast<MemoryCategory>(categories - 1);
        std::int64_t peak = 0;
        for (const TraceMemory& level : trace)
            peak = std::max(peak, level.bytes[categories - 1]);
        if (peak == 0) continue;
        std::string path = fmt::format("M{} {}", levels.front().x, svg_number(bottom));
        std::string drawn;
        for (const Level& level : levels) {
            const double bytes = static_cast<double>(stacked(level.bytes, categories));
            const std::string y = svg_number(bottom - pixels * bytes);
            if (y != drawn)
                path += fmt::format(
                    "H{}V{}", svg_number(std::min(static_cast<double>(level.x), right)),
                    y);
            drawn = y;
        }
        svg += fmt::format(
            "<path d=\"{}H{}V{}Z\" fill=\"{}\"><title>{}: at most {}</title></path>\n",
            path, svg_number(right), svg_number(bottom), colour_of(category),
            name_of(category), bytes_text(peak));
    }
    return svg;
}

}  // namespace lockstep
