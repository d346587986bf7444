#include "src/report/text_legend.hpp"

#include <algorithm>

#include "src/report/text_cells.hpp"

namespace lockstep {

namespace {

/// Entries in lines, two spaces apart.
class Lines {
  public:
    explicit Lines(int width) : width_(static_cast<std::size_t>(width)) {}

    /// `shown` is `plain` with colours.
    void add(const std::string& plain, const std::string& shown) {
        if (column_ > 0 && column_ + 2 + plain.size() > width_) {
            text_ += '\n';
            column_ = 0;
        }
        text_ += column_ > 0 ? "  " : "";
        text_ += shown;
        column_ += plain.size() + (column_ > 0 ? 2 : 0);
    }
    std::string text() const { return text_ + "\n"; }

  private:
    std::size_t width_;
    std::size_t column_ = 0;
    std::string text_;
};

}  // namespace

std::string in_colour(const std::string& text, const SpanLook& look, bool colour) {
    return colour ? look.ansi + text + "\x1b[0m" : text;
}

std::string legend_text(const std::vector<TimelineRow>& rows, int width, bool colour) {
    std::vector<const SpanLook*> looks;
    bool numbers = false;
    for (const TimelineRow& row : rows) {
        for (const TraceEvent* event : drawn_spans(row)) {
            numbers = numbers || event->micro_batch >= 0;
            if (std::ranges::find(looks, &look_of(*event)) == looks.end())
                looks.push_back(&look_of(*event));
        }
    }
    Lines lines(width);
    for (const SpanLook* look : looks) {
        std::string sample(1, look->letter);
        if (look->fill != look->letter) sample += look->fill;
        const std::string words = std::string(" ") + look->words;
        lines.add(sample + words, in_colour(sample, *look, colour) + words);
    }
    lines.add(". idle", ". idle");
    if (numbers) lines.add("0 1 2 micro-batch", "0 1 2 micro-batch");
    lines.add("% busy", "% busy");
    return lines.text();
}

}  // namespace lockstep
