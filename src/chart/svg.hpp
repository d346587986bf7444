#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/chart/chart.hpp"

namespace lockstep {

/// Draws the chart as a standalone SVG: a row a line, a box a span with its label if it
/// fits, tooltips, arrows for messages, strips of amounts below their group's rows. Idle
/// time that is lost is hatched. Its size is bounded: boxes too narrow to be seen are
/// merged, more than 20,000 are drawn by the pixel and without tooltips, and groups
/// beyond the first 64 are counted.
std::string chart_svg(const Chart& chart);

/// A picture without the tags around it.
struct SvgPart {
    double width = 0;
    double height = 0;
    std::string svg;
};

/// Draws it as a part of a larger picture.
SvgPart chart_part(const Chart& chart);

/// What pictures refer to: the pattern of idle time, and the heads of arrows. A document
/// needs it once.
const char* svg_definitions();

/// A whole document, with the style sheet of all pictures. `definitions` stand before it.
std::string svg_document(const SvgPart& picture, const std::string& definitions = "");

/// Returns text that may stand between tags and in attributes; control characters become
/// spaces, bytes that are no UTF-8 question marks.
std::string xml_escaped(std::string_view text);

/// Returns at most `most` columns of the text, which ends with "…" if some are left out.
std::string clipped(const std::string& text, int most);

/// The width of a column of text, in pixels: beside boxes, and on them.
inline constexpr double kSvgLetter = 6.9;
inline constexpr double kSvgDigit = 6.4;

/// Returns at most two decimals, without zeros at the end.
std::string svg_number(double value);

/// Returns a text element. Classes of the style sheet: "h" is a heading, "e" ends at x,
/// "m" has its middle there; "b" stands on a box and has, too, and "b k" is bold.
std::string svg_text(double x, double y, std::string_view text,
                     std::string_view classes = "");

/// Returns a rectangle. `dress` has its other attributes and ends its tag.
std::string svg_rectangle(double x, double y, double width, double height,
                          const std::string& dress);

/// Swatches with their words, in lines from `left` to `right`.
class SvgLegend {
  public:
    SvgLegend(double left, double right, double top)
        : left_(left), right_(right), x_(left), y_(top) {}

    void heading(const std::string& words);
    /// `dresses` say how to fill a swatch each.
    void add(const std::vector<std::string>& dresses, const std::string& words);

    const std::string& svg() const { return svg_; }
    double bottom() const;

  private:
    void next_line();

    double left_;
    double right_;
    double x_;
    double y_;
    std::string svg_;
};

}  // namespace lockstep
