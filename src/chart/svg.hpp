#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/chart/chart.hpp"

namespace lockstep {

/// Draws the chart as a standalone SVG. Each row is a line. Each box is a span with a
/// tooltip, and with a label if the label fits. Messages are arrows. Strips of amounts
/// are below their group's rows. Lost idle time is hatched. The picture's size is
/// bounded: boxes too narrow to be seen are merged, more than 20,000 boxes are drawn
/// pixel by pixel without tooltips, and groups after the first 64 are only counted.
std::string chart_svg(const Chart& chart);

/// A picture without the document's tags around it.
struct SvgPart {
    double width = 0;
    double height = 0;
    std::string svg;
};

/// Draws the chart as a part of a larger picture.
SvgPart chart_part(const Chart& chart);

/// Returns definitions that pictures refer to: the pattern of idle time, and the heads of
/// arrows. A document needs them once.
const char* svg_definitions();

/// Returns a whole document, with the style sheet of all pictures. `definitions` come
/// before the picture.
std::string svg_document(const SvgPart& picture, const std::string& definitions = "");

/// Returns text that is safe between tags and in attributes. Control characters become
/// spaces; bytes that are not UTF-8 become question marks.
std::string xml_escaped(std::string_view text);

/// Returns at most `most` columns of the text. It ends with "…" if some are left out.
std::string clipped(const std::string& text, int most);

/// The width of a column of text in pixels: beside boxes, and on boxes.
inline constexpr double kSvgLetter = 6.9;
inline constexpr double kSvgDigit = 6.4;

/// Returns the number with at most two decimals, without trailing zeros.
std::string svg_number(double value);

/// Returns a text element. Classes of the style sheet: "h" is a heading, "e" ends at x,
/// "m" is centred at x, "b" is centred text on a box, and "b k" is the same in bold.
std::string svg_text(double x, double y, std::string_view text,
                     std::string_view classes = "");

/// Returns a rectangle. `dress` is the other attributes and the end of the tag.
std::string svg_rectangle(double x, double y, double width, double height,
                          const std::string& dress);

/// Swatches with their words, in lines from `left` to `right`.
class SvgLegend {
  public:
    SvgLegend(double left, double right, double top)
        : left_(left), right_(right), x_(left), y_(top) {}

    void heading(const std::string& words);
    /// Each of `dresses` says how to fill a swatch.
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
