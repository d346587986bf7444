#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/chart/look.hpp"
#include "src/core/units.hpp"

namespace lockstep {

// A chart is data: what happens when, in rows. Adapters make charts: timeline_chart()
// from a run (src/report/timeline.hpp), schedule_chart() from a pipeline schedule
// (src/pipeline/picture.hpp). Painters draw them: chart_text() and chart_svg(). Neither
// knows the other.

/// A time on an axis.
struct AxisTick {
    Picoseconds time = 0;
    std::string label;
};

/// A scale of time from 0 to `end`. Times are whole numbers of any unit; `per_unit` of
/// them are one unit of the labels.
struct Axis {
    Picoseconds end = 1;
    double per_unit = 1;
    std::string unit;  ///< "us"; empty if the times have no unit

    /// A scale in the largest of s, ms, us, ns and ps that `end` reaches.
    static Axis of_seconds(Picoseconds end);

    /// Round times, at most `most` of them behind the first, which is 0.
    std::vector<AxisTick> ticks(int most) const;
    /// About how many characters the longest label has.
    int label_size() const;
};

/// A span of time in a row.
struct Box {
    Picoseconds start = 0;
    Picoseconds end = 0;
    int look = 0;            ///< its place in Chart::looks
    int number = -1;         ///< of the micro-batch; -1 if it has none
    int depth = 0;           ///< in how many other boxes of its row it lies
    std::size_t source = 0;  ///< from what the adapter made it
};

/// The words on a box and beside it.
struct BoxWords {
    std::vector<std::string> labels;  ///< from the longest to the shortest: one is shown
    std::string tooltip;
    std::string id = {};  ///< names the box in its panel's picture; empty if it has none
    std::string waits_for = {};  ///< ids of the boxes that it waits for, spaces between
};

/// The height of a row.
enum class RowSize { large, medium, small };

/// Boxes beside one another. Two boxes of one depth do not overlap; each inner box lies
/// in one of the depth above, and stands behind it in the list.
struct Row {
    std::string label;
    RowSize size = RowSize::large;
    bool shows_idle = false;  ///< time without a box is lost, and stands out
    double busy = -1;         ///< part of the time, to be shown; negative if it is not
    std::vector<Box> boxes;
};

/// Amounts from a time on, one a layer, until the next level.
struct Level {
    static constexpr int kMostLayers = 7;

    Picoseconds time = 0;
    std::array<double, kMostLayers> amounts{};

    double total() const;
};

/// Amounts over time, stacked.
struct Strip {
    std::string label;
    std::vector<Level> levels;  ///< by time
    double peak = 0;
    Picoseconds peak_at = 0;
};

/// All that belongs to a device or a stage, or to several that do exactly the same.
struct RowGroup {
    std::vector<int> members;  ///< ascending
    std::vector<Row> rows;
    std::vector<Strip> strips;
};

/// A row in a panel.
struct RowPlace {
    std::size_t group = 0;
    std::size_t row = 0;
    bool operator==(const RowPlace&) const = default;
};

/// A message.
struct Arrow {
    RowPlace from;
    RowPlace to;
    Picoseconds start = 0;
    Picoseconds end = 0;
    std::string tooltip;
};

/// Groups below one another on one axis.
struct Panel {
    std::string title;
    std::string note;     ///< beside the title: "4 devices, 20 us"
    Picoseconds end = 0;  ///< when all is over; the axis may go on
    Axis axis;
    std::vector<RowGroup> groups;
    std::vector<int> layers;  ///< looks of the strips' layers, from below
    std::vector<Arrow> arrows;
    /// Returns what is written on a box; asked only for boxes that are drawn.
    std::function<BoxWords(const RowGroup&, const Box&)> words_of;
    /// An amount of a strip, in words.
    std::string (*amount_text)(double) = nullptr;
};

/// Several looks side by side, and what they mean together.
struct LegendEntry {
    std::string heading;  ///< begins a line of its own; empty for most
    std::vector<int> looks;
    std::string words;
};

struct Chart {
    std::string member = "device";  ///< what a member of a group is called
    std::vector<Look> looks;
    std::vector<LegendEntry> legend;
    std::vector<Panel> panels;
    /// True if the picture is to be as wide as its numbers need to be read, within
    /// reason.
    bool grows = false;
    /// Says a word of the picture, "idle", in its reader's language; null for English.
    std::string (*translate)(std::string_view english) = nullptr;

    std::string said(std::string_view english) const {
        return translate ? translate(english) : std::string(english);
    }
    /// "device", or "devices" if there are several.
    std::string member_word(std::size_t count) const {
        return said(count > 1 ? member + "s" : member);
    }

    /// The place of the look in `looks`, to which it is added if it is new.
    int look(const Look& look);
};

/// "0–3 × 4", "2"; of members that do not follow one another as many as fit into about
/// `most` columns: "0, 2, … × 7".
std::string members_text(const std::vector<int>& members, int most);

}  // namespace lockstep
