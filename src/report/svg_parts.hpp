#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/function_ref.hpp"
#include "src/report/timeline_rows.hpp"

namespace lockstep {

/// Where times lie on the picture, in pixels.
struct SvgScale {
    Picoseconds end = 1;
    double left = 0;
    double width = 1;

    double x(Picoseconds time) const {
        return left + width * static_cast<double>(time) / static_cast<double>(end);
    }
    /// The time that one pixel takes.
    Picoseconds pixel() const {
        return static_cast<Picoseconds>(static_cast<double>(end) / width);
    }
};

/// Text that may stand between tags and in attributes; control characters become spaces,
/// bytes that are no UTF-8 question marks.
std::string xml_escaped(std::string_view text);

/// At most two decimals, no trailing zeros.
std::string svg_number(double value);

/// A span as it is drawn, or several neighbours that are too narrow for a box each.
struct SvgBox {
    const TraceEvent* event;  ///< of several, the longest
    Picoseconds start;
    Picoseconds end;
    int depth;
    int count;
};

/// The row's boxes; neighbours of one depth that are shorter than `least`, with gaps
/// shorter than it between them, are merged.
std::vector<SvgBox> svg_boxes(const TimelineRow& row, Picoseconds least);

/// One box with its tooltip, and its name where it fits, between `top` and `top +
/// height`. Boxes inside another are thin and lie along its lower edge.
std::string svg_box(const SvgBox& box, const SvgScale& scale, double top, double height);

/// Beyond this many, messages are counted, not drawn.
inline constexpr std::size_t kMostArrows = 1000;

/// Arrows of messages between rows; `y_of(rank, queue)` is a row's centre, negative where
/// the row is not drawn.
std::string svg_arrows(const std::vector<TraceFlow>& flows, const SvgScale& scale,
                       FunctionRef<double(int rank, const std::string& queue)> y_of);

/// Bytes in use on one rank from its first level to `end`, stacked by category; `most`
/// bytes are `height` pixels.
std::string svg_memory(const std::vector<TraceMemory>& trace, const SvgScale& scale,
                       Picoseconds end, double top, double height, std::int64_t most);

}  // namespace lockstep
