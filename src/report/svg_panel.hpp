#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/report/svg_parts.hpp"
#include "src/report/timeline_look.hpp"

namespace lockstep {

/// One run in a timeline picture: a heading, the rows of its devices, and a scale of
/// time.
class SvgPanel {
  public:
    /// The report must outlive the panel. `end` is where the scale of time ends.
    SvgPanel(std::string title, const RunReport& report, Picoseconds end, double top);

    double bottom() const { return bottom_; }
    std::string svg() const;

    /// What the legend must explain, in order of appearance.
    std::vector<const SpanLook*> looks() const;
    std::set<MemoryCategory> categories() const;

    static constexpr double kWidth = 1180;

  private:
    struct Row {
        TimelineRow row;
        double top;
        double height;
    };
    struct Device {
        int rank;
        double top;
        double bottom;
        double memory_top = -1;
        std::vector<TraceMemory> memory;
    };

    void place_rows();
    Device& device_of(int rank);
    std::string heading() const;
    std::string axis() const;
    std::string device_svg(const Device& device) const;
    std::string boxes() const;
    std::string arrows() const;

    std::string title_;
    const RunReport& report_;
    SvgScale scale_;
    double top_;
    double bottom_ = 0;
    int ranks_ = 0;
    std::int64_t most_bytes_ = 0;
    std::vector<Row> rows_;
    std::vector<Device> devices_;
};

}  // namespace lockstep
