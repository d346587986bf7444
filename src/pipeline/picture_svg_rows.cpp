#include "src/pipeline/picture_svg_rows.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "src/report/timeline_look.hpp"

namespace lockstep {

namespace {

constexpr double kLeastWidth = 0.5;
/// Boxes that are wider have a white edge.
constexpr double kLeastEdged = 4;

std::string rectangle(const StageBox& box, const SvgScale& scale,
                      const SvgRow& row, const std::string& colour) {
    const double x = scale.x(box.span.start);
    const double width = std::max(scale.x(box.span.end) - x, kLeastWidth);
    return fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "fill=\"{}\"{}><title>{} on stage {}, {} to {}</title></rect>\n",
        svg_number(x), svg_number(row.top), svg_number(width),
        svg_number(row.height), colour,
        width > kLeastEdged ? " class=\"w\"" : "", text_of(*box.work),
        row.stage, box.span.start, box.span.end);
}

/// The row's runs of one colour, as strokes as high as the row.
template <typename ColourOf>
std::string strokes(const std::vector<StageBox>& boxes,
                    const SvgScale& scale, const SvgRow& row,
                    const ColourOf& colour_of) {
    const CellGrid grid{scale.end, static_cast<int>(scale.width)};
    const std::vector<int> shown = columns_of_boxes(boxes, grid);
    std::vector<std::string> colours;
    colours.reserve(shown.size());
    for (const int box : shown)
        colours.push_back(box < 0 ? "" : colour_of(*boxes[box].work));
    struct Path {
        std::size_t at = 0;  ///< the column where the pen is
        std::string moves;
    };
    std::map<std::string, Path> paths;
    for (std::size_t c = 0; c < colours.size();) {
        std::size_t next = c + 1;
        while (next < colours.size() && colours[next] == colours[c])
            ++next;
        if (!colours[c].empty()) {
            Path& path = paths[colours[c]];
            path.moves += fmt::format("m{} 0h{}", c - path.at, next - c);
            path.at = next;
        }
        c = next;
    }
    std::string svg;
    for (const auto& [colour, path] : paths)
        svg += fmt::format(
            "<path d=\"M{} {}{}\" stroke=\"{}\" stroke-width=\"{}\"/>\n",
            svg_number(scale.left), svg_number(row.top + row.height / 2),
            path.moves, colour, svg_number(row.height));
    return svg;
}

/// At most two levels for each pixel: the highest in it, and the last.
std::vector<HeldLevel> levels_by_pixel(const HeldMemory& held,
                                       const SvgScale& scale) {
    const auto pixel = [&](const HeldLevel& level) {
        return std::floor(scale.x(level.time));
    };
    std::vector<HeldLevel> levels;
    for (std::size_t i = 0; i < held.levels.size();) {
        std::size_t highest = i;
        std::size_t last = i;
        for (; i < held.levels.size() &&
               pixel(held.levels[i]) == pixel(held.levels[last]);
             last = i++)
            if (held.levels[i].total() > held.levels[highest].total())
                highest = i;
        levels.push_back(held.levels[highest]);
        if (last != highest) levels.push_back(held.levels[last]);
    }
    return levels;
}

/// The area below the levels; all of them, or without what is between the
/// halves.
std::string area(const std::vector<HeldLevel>& levels,
                 const SvgScale& scale, const SvgRow& row, double most,
                 bool all) {
    const double bottom = row.top + row.height;
    std::string path =
        fmt::format("M{} {}", svg_number(scale.left), svg_number(bottom));
    std::string drawn = svg_number(bottom);
    for (const HeldLevel& level : levels) {
        const double held = all ? level.total() : level.activations;
        const std::string y = svg_number(bottom - row.height * held / most);
        if (y != drawn)
            path +=
                fmt::format("H{}V{}", svg_number(scale.x(level.time)), y);
        drawn = y;
    }
    return fmt::format("<path d=\"{}H{}V{}Z\" fill=\"{}\"/>\n", path,
                       svg_number(scale.left + scale.width),
                       svg_number(bottom), held_colour(all));
}

}  // namespace

std::string svg_boxes(const std::vector<StageBox>& boxes,
                      const ScheduleLook& look, const SvgScale& scale,
                      const SvgRow& row, int digits) {
    constexpr double kBaseline = 4;
    std::string svg;
    for (const StageBox& box : boxes) {
        svg += rectangle(box, scale, row,
                         look.colour(box.work->kind, box.work->chunk));
        const double start = scale.x(box.span.start);
        const double end = scale.x(box.span.end);
        if (end - start < number_width(digits)) continue;
        svg +=
            fmt::format("<text x=\"{}\" y=\"{}\" class=\"b\">{}</text>\n",
                        svg_number((start + end) / 2),
                        svg_number(row.top + row.height / 2 + kBaseline),
                        box.work->micro_batch);
    }
    return svg;
}

std::string svg_pixels(const std::vector<StageBox>& boxes,
                       const ScheduleLook& look, const SvgScale& scale,
                       const SvgRow& row) {
    return strokes(boxes, scale, row, [&](const Instruction& work) {
        return look.colour(work.kind, work.chunk);
    });
}

std::string svg_messages(const std::vector<StageBox>& messages,
                         const SvgScale& scale, const SvgRow& row,
                         bool pixels) {
    const auto colour_of = [](const Instruction& work) -> std::string {
        return is_send(work.kind) ? kSentColour : kReceivedColour;
    };
    if (pixels) return strokes(messages, scale, row, colour_of);
    std::string svg;
    for (const StageBox& message : messages)
        svg += rectangle(message, scale, row, colour_of(*message.work));
    return svg;
}

std::string svg_held(const HeldMemory& held, const SvgScale& scale,
                     const SvgRow& row, double most) {
    if (held.peak <= 0) return "";
    const std::vector<HeldLevel> levels = levels_by_pixel(held, scale);
    const bool between = std::ranges::any_of(
        levels,
        [](const HeldLevel& level) { return level.for_weights > 0; });
    std::string svg;
    if (between) svg = area(levels, scale, row, most, true);
    svg += area(levels, scale, row, most, false);
    const double x = scale.x(held.peak_at);
    const double y = row.top + row.height * (1 - held.peak / most);
    return svg + fmt::format(
                     "<circle cx=\"{}\" cy=\"{}\" r=\"2.5\"/><text "
                     "x=\"{}\" y=\"{}\" class=\"p\">peak {}</text>\n",
                     svg_number(x), svg_number(y), svg_number(x + 5),
                     svg_number(y - 3), held_text(held.peak));
}

const char* held_colour(bool for_weights) {
    return for_weights ? "#009E73" : colour_of(MemoryCategory::activations);
}

}  // namespace lockstep
