#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/report/svg_panel.hpp"
#include "src/report/timeline.hpp"
#include "src/report/timeline_look.hpp"

namespace lockstep {

namespace {

constexpr const char* kStyle =
    "<defs><marker id=\"head\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" "
    "markerWidth=\"6\" "
    "markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L6 3L0 6Z\" "
    "fill=\"#333\"/></marker></defs>\n"
    "<style>text{font:11px 'DejaVu Sans',Arial,sans-serif;fill:#111}"
    ".h{font-size:13px;font-weight:bold}.e{text-anchor:end;fill:#444}"
    ".m{text-anchor:middle;fill:#444}.b{text-anchor:middle;pointer-events:none}"
    ".w{stroke:#fff;stroke-width:.8}.r{fill:#f4f4f4}.g{stroke:#ddd;stroke-width:1}.i{"
    "fill:#000;fill-opacity:.28;stroke:#fff;"
    "stroke-width:.4}.a{stroke:#333;stroke-width:.8;stroke-opacity:.7;fill:none}</"
    "style>\n";

/// A run that would take less than this part of the picture's width gets its own scale of
/// time.
constexpr Picoseconds kLeastShare = 20;

/// Swatches with their words in lines; moves `y` below them.
class Legend {
  public:
    explicit Legend(double y) : y_(y) {}

    void add(const std::string& colour, const std::string& words,
             const std::string& classes = "") {
        const double width = 26 + 6.6 * static_cast<double>(words.size());
        if (x_ + width > SvgPanel::kWidth) next_line();
        svg_ += fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"{}\" {}/>\n", svg_number(x_),
            svg_number(y_ + (classes.empty() ? 0 : 6)), classes.empty() ? 12 : 6,
            classes.empty() ? fmt::format("fill=\"{}\"", colour) : classes);
        svg_ += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", svg_number(x_ + 17),
                            svg_number(y_ + 10), words);
        x_ += width;
    }
    void next_line() {
        x_ = kLeft;
        y_ += 20;
    }
    void heading(const std::string& words) {
        svg_ += fmt::format("<text x=\"14\" y=\"{}\">{}</text>\n", svg_number(y_ + 10),
                            words);
    }
    const std::string& svg() const { return svg_; }
    double y() const { return y_; }

  private:
    static constexpr double kLeft = 150;
    double x_ = kLeft;
    double y_;
    std::string svg_;
};

Legend legend_of(const std::vector<SvgPanel>& panels, double y) {
    std::vector<const SpanLook*> looks;
    std::set<MemoryCategory> categories;
    for (const SvgPanel& panel : panels) {
        for (const SpanLook* look : panel.looks())
            if (std::ranges::find(looks, look) == looks.end()) looks.push_back(look);
        categories.merge(panel.categories());
    }
    Legend legend(y);
    legend.heading("spans");
    for (const SpanLook* look : looks)
        legend.add(look->colour, look->words);
    legend.add("", "operation in a phase", "class=\"i\"");
    legend.next_line();
    if (categories.empty()) return legend;
    legend.heading("memory");
    for (const MemoryCategory category : categories)
        legend.add(colour_of(category), name_of(category));
    legend.next_line();
    return legend;
}

std::string document(const std::vector<SvgPanel>& panels) {
    double bottom = 10;
    std::string body;
    for (const SvgPanel& panel : panels) {
        body += panel.svg();
        bottom = panel.bottom() + 10;
    }
    if (panels.empty()) {
        body = "<text x=\"14\" y=\"24\">No run was traced.</text>\n";
        bottom = 30;
    }
    const Legend legend = legend_of(panels, bottom);
    const double height = panels.empty() ? 40 : legend.y() + 4;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\">\n{2}<rect width=\"100%\" height=\"100%\" "
        "fill=\"#fff\"/>\n{3}{4}</svg>\n",
        SvgPanel::kWidth, svg_number(height), kStyle, body,
        panels.empty() ? "" : legend.svg());
}

}  // namespace

std::string timeline_svg(const RunReport& report, const std::string& title) {
    return document({SvgPanel(title, report, timeline_end(report), 10)});
}

std::string timeline_svg(const std::vector<std::pair<std::string, RunReport>>& runs) {
    Picoseconds end = 0;
    for (const auto& [name, report] : runs)
        if (!report.trace.empty()) end = std::max(end, timeline_end(report));
    std::vector<SvgPanel> panels;
    for (const auto& [name, report] : runs) {
        const double top = panels.empty() ? 10 : panels.back().bottom() + 16;
        if (report.trace.empty()) continue;
        const Picoseconds own = timeline_end(report);
        panels.emplace_back(name, report, own < end / kLeastShare ? own : end, top);
    }
    return document(panels);
}

}  // namespace lockstep
