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

// A chart is data: rows that say what happens when. Adapters make charts:
// timeline_chart() from a run (src/report/timeline.hpp), schedule_chart() from a pipeline
// schedule (src/pipeline/picture.hpp). Painters draw them: chart_text() and chart_svg().
// Adapters and painters do not depend on each other.

/// A time on an axis.
struct AxisTick {
    Picoseconds time = 0;
    std::string label;
};

/// A scale of time from 0 to `end`. Times are whole numbers of any unit; `per_unit` such
/// units are one unit of the labels.
struct Axis {
    Picoseconds end = 1;
    double per_unit = 1;
    std::string unit;  ///< "us"; empty if the times have no unit

    /// Returns a scale in the largest unit (s, ms, us, ns or ps) that `end` reaches.
    static Axis of_seconds(Picoseconds end);

    /// Returns round times: 0, and at most `most` later times.
    std::vector<AxisTick> ticks(int most) const;
    /// Returns the approximate number of characters of the longest label.
    int label_size() const;
};

/// A span of time in a row.
struct Box {
    Picoseconds start = 0;
    Picoseconds end = 0;
    int look = 0;            ///< its index in Chart::looks
    int number = -1;         ///< the micro-batch's number; -1 if the box has none
    int depth = 0;           ///< how many boxes of its row contain it
    std::size_t source = 0;  ///< index of the item that the adapter drew as this box
};

/// The words on a box and beside it.
struct BoxWords {
    std::vector<std::string> labels;  ///< longest first; the first that fits is shown
    std::string tooltip;
    std::string id = {};         ///< names the box in its panel's picture; may be empty
    std::string waits_for = {};  ///< ids of boxes that it waits for, separated by spaces
};

/// The height of a row.
enum class RowSize { large, medium, small };

/// Boxes next to each other. Boxes of one depth do not overlap. Each inner box is inside
/// a box of the next lower depth, and comes after that box in the list.
struct Row {
    std::string label;
    RowSize size = RowSize::large;
    bool shows_idle = false;  ///< if true, time without a box is marked as lost
    double busy = -1;         ///< busy fraction of the time; not shown if negative
    std::vector<Box> boxes;
};

/// The amounts of a strip's layers, from `time` until the next level begins.
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

/// The rows and strips of a device or a stage, or of several that do exactly the same.
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

/// Groups, one below the other, on one axis.
struct Panel {
    std::string title;
    std::string note;     ///< next to the title: "4 devices, 20 us"
    Picoseconds end = 0;  ///< when everything has ended; the axis may be longer
    Axis axis;
    std::vector<RowGroup> groups;
    std::vector<int> layers;  ///< indices of the layers' looks, lowest layer first
    std::vector<Arrow> arrows;
    /// Returns the words of a box; called only for boxes that are drawn.
    std::function<BoxWords(const RowGroup&, const Box&)> words_of;
    /// Returns an amount of a strip in words.
    std::string (*amount_text)(double) = nullptr;
};

/// Several looks side by side, and what they mean together.
struct LegendEntry {
    std::string heading;  ///< begins a new line; usually empty
    std::vector<int> looks;
    std::string words;
};

struct Chart {
    std::string member = "device";  ///< what a member of a group is called
    std::vector<Look> looks;
    std::vector<LegendEntry> legend;
    std::vector<Panel> panels;
    /// If true, the picture becomes wide enough, within limits, for readable numbers.
    bool grows = false;
    /// Translates words of the picture, such as "idle", for its reader; null for English.
    std::string (*translate)(std::string_view english) = nullptr;

    std::string said(std::string_view english) const {
        return translate ? translate(english) : std::string(english);
    }
    /// "device", or "devices" if there are several.
    std::string member_word(std::size_t count) const {
        return said(count > 1 ? member + "s" : member);
    }

    /// Returns the index of the look in `looks`; adds the look if it is new.
    int look(const Look& look);
};

/// "0–3 × 4", or "2". If members are not consecutive, lists only those that fit into
/// about `most` columns: "0, 2, … × 7".
std::string members_text(const std::vector<int>& members, int most);

}  // namespace lockstep
