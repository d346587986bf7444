#include "src/report/svg_panel.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "src/report/time_axis.hpp"

namespace lockstep {

namespace {

constexpr int kMostRanks = 64;
constexpr std::size_t kMostBoxes = 20'000;
constexpr double kLabelWidth = 150;
constexpr double kMargin = 14;
constexpr double kHeading = 26;
constexpr double kAxis = 26;
constexpr double kMemory = 34;
constexpr double kGap = 3;
constexpr double kDeviceGap = 9;

double height_of(const std::string& queue) {
    return queue == "compute" ? 26 : 18;
}

std::int64_t total(const TraceMemory& level) {
    return std::accumulate(level.bytes.begin(), level.bytes.end(), std::int64_t{0});
}

}  // namespace

SvgPanel::SvgPanel(std::string title, const RunReport& report, Picoseconds end,
                   double top)
    : title_(std::move(title)),
      report_(report),
      scale_{std::max<Picoseconds>(end, 1), kLabelWidth,
             kWidth - kLabelWidth - kMargin - 16},
      top_(top) {
    ranks_ = static_cast<int>(report.ranks.size());
    for (const TraceEvent& event : report.trace)
        ranks_ = std::max(ranks_, event.rank + 1);
    place_rows();
}

void SvgPanel::place_rows() {
    std::map<int, std::vector<TraceMemory>> memory;
    for (const TraceMemory& level : report_.memory_trace) {
        if (level.rank >= kMostRanks) continue;
        memory[level.rank].push_back(level);
        most_bytes_ = std::max(most_bytes_, total(level));
    }
    std::map<int, std::vector<TimelineRow>> rows;
    for (TimelineRow& row : timeline_rows(report_))
        if (row.rank < kMostRanks) rows[row.rank].push_back(std::move(row));
    for (const auto& [rank, levels] : memory)
        rows[rank];

    double y = top_ + kHeading;
    for (auto& [rank, device_rows] : rows) {
        Device device{rank, y, y, -1, std::move(memory[rank])};
        for (TimelineRow& row : device_rows) {
            const double height = height_of(row.queue);
            rows_.push_back({std::move(row), y, height});
            y += height + kGap;
        }
        if (!device.memory.empty()) {
            device.memory_top = y;
            y += kMemory + kGap;
        }
        device.bottom = y - kGap;
        devices_.push_back(std::move(device));
        y += kDeviceGap;
    }
    bottom_ = y + kAxis;
}

std::string SvgPanel::heading() const {
    std::string text = fmt::format("<text x=\"{}\" y=\"{}\" class=\"h\">{}</text>\n",
                                   kMargin, svg_number(top_ + 14), xml_escaped(title_));
    std::string size =
        fmt::format("{} {}, {}", ranks_, ranks_ == 1 ? "device" : "devices",
                    time_text(timeline_end(report_)));
    if (ranks_ > kMostRanks) size += fmt::format("; the first {} are drawn", kMostRanks);
    if (report_.flows.size() > kMostArrows)
        size += fmt::format("; {} messages without arrows",
                            count_text(static_cast<std::int64_t>(report_.flows.size())));
    return text + fmt::format("<text x=\"{}\" y=\"{}\" class=\"e\">{}</text>\n",
                              svg_number(scale_.left + scale_.width),
                              svg_number(top_ + 14), size);
}

/// Grid lines through all rows, and their times below.
std::string SvgPanel::axis() const {
    const TimeAxis axis = TimeAxis::of(scale_.end, 12);
    const double low = bottom_ - kAxis;
    std::string text;
    for (Picoseconds tick = 0; tick <= scale_.end / axis.step; ++tick) {
        const Picoseconds time = tick * axis.step;
        const std::string x = svg_number(scale_.x(time));
        text += fmt::format("<path d=\"M{} {}V{}\" class=\"g\"/>\n", x,
                            svg_number(top_ + kHeading - 4), svg_number(low));
        text += fmt::format("<text x=\"{}\" y=\"{}\" class=\"m\">{}</text>\n", x,
                            svg_number(low + 13), axis.label(time));
    }
    return text + fmt::format("<text x=\"{}\" y=\"{}\" class=\"e\">time in {}</text>\n",
                              svg_number(scale_.left - 20), svg_number(low + 13),
                              axis.unit_name);
}

std::string SvgPanel::device_svg(const Device& device) const {
    std::string text = fmt::format("<text x=\"{}\" y=\"{}\">device {}</text>\n", kMargin,
                                   svg_number(device.top + 13), device.rank);
    if (device.memory.empty()) return text;
    std::int64_t peak = 0;
    for (const TraceMemory& level : device.memory)
        peak = std::max(peak, total(level));
    text += fmt::format(
        "<text x=\"{0}\" y=\"{1}\" class=\"e\">memory</text>\n"
        "<text x=\"{0}\" y=\"{2}\" class=\"e\">{3}</text>\n",
        svg_number(scale_.left - 8), svg_number(device.memory_top + 13),
        svg_number(device.memory_top + 26), bytes_text(peak));
    return text + svg_memory(device.memory, scale_, timeline_end(report_),
                             device.memory_top, kMemory, most_bytes_);
}

/// Spans narrower than half a pixel are merged; more than that where there are too many
/// boxes.
std::string SvgPanel::boxes() const {
    std::vector<std::pair<const Row*, std::vector<SvgBox>>> drawn;
    Picoseconds least = scale_.pixel() / 2 + 1;
    for (std::size_t count = kMostBoxes + 1; count > kMostBoxes; least *= 2) {
        drawn.clear();
        count = 0;
        for (const Row& row : rows_) {
            drawn.emplace_back(&row, svg_boxes(row.row, least));
            count += drawn.back().second.size();
        }
        if (least > scale_.end) break;
    }
    std::string text;
    for (const auto& [row, row_boxes] : drawn) {
        text += fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"r\"/>\n",
            svg_number(scale_.left), svg_number(row->top), svg_number(scale_.width),
            svg_number(row->height));
        text += fmt::format("<text x=\"{}\" y=\"{}\" class=\"e\">{}</text>\n",
                            svg_number(scale_.left - 8), svg_number(row->top + 13),
                            xml_escaped(row->row.label()));
        for (const SvgBox& box : row_boxes)
            text += svg_box(box, scale_, row->top, row->height);
    }
    return text;
}

std::string SvgPanel::arrows() const {
    return svg_arrows(report_.flows, scale_, [&](int rank, const std::string& queue) {
        const auto found = std::ranges::find_if(rows_, [&](const Row& row) {
            return row.row.rank == rank && row.row.queue == queue;
        });
        return found == rows_.end() ? -1. : found->top + found->height / 2;
    });
}

std::string SvgPanel::svg() const {
    std::string text = heading() + axis();
    for (const Device& device : devices_)
        text += device_svg(device);
    return text + boxes() + arrows();
}

std::vector<const SpanLook*> SvgPanel::looks() const {
    std::vector<const SpanLook*> found;
    for (const Row& row : rows_) {
        for (const RowSpan& span : row.row.spans) {
            const SpanLook* look = &look_of(*span.event);
            if (span.depth == 0 && std::ranges::find(found, look) == found.end())
                found.push_back(look);
        }
    }
    return found;
}

std::set<MemoryCategory> SvgPanel::categories() const {
    std::set<MemoryCategory> found;
    for (const Device& device : devices_)
        for (const TraceMemory& level : device.memory)
            for (int c = 0; c < kMemoryCategories; ++c)
                if (level.bytes[c] > 0) found.insert(static_cast<MemoryCategory>(c));
    return found;
}

}  // namespace lockstep
