#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "src/report/text_cells.hpp"
#include "src/report/text_legend.hpp"
#include "src/report/time_axis.hpp"
#include "src/report/timeline.hpp"
#include "src/report/timeline_look.hpp"
#include "src/report/timeline_rows.hpp"

namespace lockstep {

namespace {

constexpr int kMostRanks = 16;
constexpr int kPercentColumns = 5;

/// Cut to so many bytes, not inside a UTF-8 character.
std::string clipped(std::string text, int columns) {
    auto size = static_cast<std::size_t>(columns);
    if (text.size() <= size) return text;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80)
        --size;
    text.resize(size);
    return text;
}

/// "F3----": letter, micro-batch where it fits, fill.
std::string box_text(const TraceEvent& event, int columns) {
    const SpanLook& look = look_of(event);
    std::string text(1, look.letter);
    if (event.micro_batch >= 0) {
        const std::string number = std::to_string(event.micro_batch);
        if (static_cast<int>(number.size()) < columns) text += number;
    }
    text.resize(static_cast<std::size_t>(columns), look.fill);
    return text;
}

/// One picture: what is drawn, and where the columns are.
class Picture {
  public:
    Picture(const RunReport& report, const TimelineOptions& options)
        : options_(options),
          width_(std::max(options.width, 40)),
          end_(timeline_end(report)) {
        for (const TraceEvent& event : report.trace)
            ranks_ = std::max(ranks_, event.rank + 1);
        ranks_ = std::max(ranks_, static_cast<int>(report.ranks.size()));
        for (TimelineRow& row : timeline_rows(report))
            if (row.rank < kMostRanks && !drawn_spans(row).empty())
                rows_.push_back(std::move(row));
        measure_labels();
        grid_ = CellGrid::of(rows_, end_, width_ - label_columns() - 2 - kPercentColumns);
    }

    std::string text() const {
        std::string text = heading();
        if (rows_.empty()) return text + "(no span of time was traced)\n";
        for (std::size_t r = 0; r < rows_.size(); ++r)
            text += row_text(rows_[r], r == 0 || rows_[r - 1].rank != rows_[r].rank);
        text += axis_text();
        if (ranks_ > kMostRanks)
            text +=
                fmt::format("(and {} more devices, not drawn)\n", ranks_ - kMostRanks);
        return text + legend_text(rows_, width_, options_.colour);
    }

  private:
    void measure_labels() {
        const bool narrow = width_ < 70;
        device_word_ = narrow ? "dev" : "device";
        const bool only_compute = std::ranges::all_of(
            rows_, [](const TimelineRow& row) { return row.label() == "compute"; });
        for (const TimelineRow& row : rows_) {
            const auto digits = static_cast<int>(std::to_string(row.rank).size());
            rank_columns_ = std::max(rank_columns_, digits);
            if (only_compute) continue;
            const int longest = narrow ? 8 : 14;
            queue_columns_ =
                std::max(queue_columns_,
                         std::min(static_cast<int>(row.label().size()) + 1, longest + 1));
        }
    }

    int label_columns() const {
        return static_cast<int>(device_word_.size()) + 1 + rank_columns_ +
               queue_columns_ + 1;
    }

    std::string heading() const {
        const std::string size = fmt::format(
            "{} {}, {}", ranks_, ranks_ == 1 ? "device" : "devices", time_text(end_));
        if (options_.title.empty()) return size + "\n";
        return clipped(fmt::format("{}: {}", options_.title, size), width_) + "\n";
    }

    std::string row_text(const TimelineRow& row, bool first_of_device) const {
        std::string label = first_of_device ? fmt::format("{} {:>{}}", device_word_,
                                                          row.rank, rank_columns_)
                                            : "";
        label.resize(device_word_.size() + 1 + static_cast<std::size_t>(rank_columns_),
                     ' ');
        if (queue_columns_ > 0)
            label += " " + clipped(fmt::format("{:<{}}", row.label(), queue_columns_ - 1),
                                   queue_columns_ - 1);
        const double percent =
            100. * static_cast<double>(busy_time(row)) / static_cast<double>(end_);
        return fmt::format("{} |{}|{:>4}%\n", label, cells_text(row),
                           std::lround(percent));
    }

    std::string cells_text(const TimelineRow& row) const {
        const std::vector<const TraceEvent*> spans = drawn_spans(row);
        const std::vector<int> cells = fill_cells(spans, grid_);
        std::string text;
        for (std::size_t c = 0; c < cells.size();) {
            std::size_t next = c + 1;
            while (next < cells.size() && cells[next] == cells[c])
                ++next;
            const auto columns = static_cast<int>(next - c);
            if (cells[c] < 0) {
                text.append(next - c, '.');
            } else {
                const TraceEvent& event = *spans[cells[c]];
                text +=
                    in_colour(box_text(event, columns), look_of(event), options_.colour);
            }
            c = next;
        }
        return text;
    }

    /// A ruler, and below it the times; the unit stands under the labels.
    std::string axis_text() const {
        const TimeAxis axis = TimeAxis::of(end_, std::max(grid_.columns / 8, 1));
        const std::size_t left = static_cast<std::size_t>(label_columns()) + 1;
        std::string ruler(static_cast<std::size_t>(grid_.columns) + 1, '-');
        std::string labels = fmt::format("{:>{}} ", axis.unit_name, left - 1);
        for (Picoseconds tick = 0; tick <= end_ / axis.step; ++tick) {
            const Picoseconds time = tick * axis.step;
            const auto at = static_cast<std::size_t>(grid_.column_of(time));
            const std::string label = axis.label(time);
            ruler[at] = '+';
            const bool fits =
                labels.size() <= left + at &&
                left + at + label.size() <= static_cast<std::size_t>(width_);
            if (!fits) continue;
            labels.resize(left + at, ' ');
            labels += label + ' ';
        }
        labels.erase(labels.find_last_not_of(' ') + 1);
        return std::string(left, ' ') + ruler + "\n" + labels + "\n";
    }

    const TimelineOptions& options_;
    int width_;
    Picoseconds end_;
    int ranks_ = 0;
    std::vector<TimelineRow> rows_;
    std::string_view device_word_;
    int rank_columns_ = 1;
    int queue_columns_ = 0;
    CellGrid grid_;
};

}  // namespace

std::string timeline_text(const RunReport& report, const TimelineOptions& options) {
    return Picture(report, options).text();
}

}  // namespace lockstep
